"""Labels of stages without the axes that tell nothing more, and the stages that such a label means.

pretrain[embedding=rope,model.norm=rms,seed=0]     a label
pretrain[embedding=rope,seed=0]                    the same stage, where the embedding alone
                                                   tells what the norm is, as in a zip
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fope_lab.stages.labels import split_at_commas

SEED = "seed"


@dataclass(frozen=True)
class LabelParts:
    """A label in parts: `head` and `tail` are around its fields, which are "name=value" by name."""

    head: str
    fields: Mapping[str, str]
    tail: str

    @classmethod
    def of(cls, label: str) -> LabelParts | None:
        """The parts of a label such as "select[pretrain[embedding=rope,seed=0]]".

        None for a label without fields, such as "prepare-data[c4,byte,train]", and for one with
        square brackets in a value.
        """
        inner = label.rstrip("]")
        tail = label[len(inner) :]
        head, _, text = inner.rpartition("[")
        if not head or "]" in inner or inner.count("[") != len(tail):
            return None
        named = [(field.partition("=")[0], field) for field in split_at_commas(text)]
        fields = dict(named)
        if len(fields) < len(named) or not all("=" in field for field in fields.values()):
            return None
        return cls(f"{head}[", fields, tail)

    def __str__(self) -> str:
        return f"{self.head}{','.join(self.fields.values())}{self.tail}"

    def includes(self, other: LabelParts) -> bool:
        """Whether the other label is this one, or this one without some of its fields."""
        around = (self.head, self.tail) == (other.head, other.tail)
        return around and other.fields.items() <= self.fields.items()


def short_labels(labels: Iterable[str]) -> dict[str, str]:
    """A short form of each label, all different: without the fields that an earlier one determines.

    A field is left out if each value of one field before it goes with one value of it in all labels
    of the section. A seed always stays.
    """
    sections: dict[tuple[str, str], dict[str, LabelParts]] = {}
    short = {}
    for label in labels:
        short[label] = label
        if parts := LabelParts.of(label):
            sections.setdefault((parts.head, parts.tail), {})[label] = parts
    for members in sections.values():
        kept = _telling([parts.fields for parts in members.values()])
        for label, parts in members.items():
            fields = {name: field for name, field in parts.fields.items() if name in kept}
            short[label] = str(LabelParts(parts.head, fields, parts.tail))
    return short


def _telling(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """The names of the fields that no field before them determines, and the seed."""
    kept: list[str] = []
    for name in dict.fromkeys(name for row in rows for name in row):
        if name == SEED or not any(_determines(other, name, rows) for other in kept):
            kept.append(name)
    return kept


def _determines(first: str, second: str, rows: Sequence[Mapping[str, str]]) -> bool:
    pairs = {(row.get(first), row.get(second)) for row in rows}
    return first != SEED and len(pairs) == len({one for one, _ in pairs})
