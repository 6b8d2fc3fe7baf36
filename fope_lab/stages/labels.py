"""Short names of values, corpora and stages, and what distinguishes the stages of a sweep.

pretrain[embedding=rope,model.norm=rms,seed=0]     a stage's own label: every axis and the seed
pretrain[embedding=rope,seed=0]                    the shortest one, where the embedding alone
                                                   tells what the norm is, as in a zip
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fope_lab.data.corpora.base import Corpus
from fope_lab.data.corpora.hub import PRESETS
from fope_lab.data.tokenizers.recipe import TokenizerRecipe

ABSENT = "–"
"""Stands where an axis has no value."""
OWN = "own"
"""Stands where an axis of embeddings leaves a model the embedding that it has."""
MOST_SHOWN = 60
"""The most characters of a setting that distinguishes two equal labels."""


def label(value: Any) -> str:
    """An axis value as a short text: {type: p-rope, p: 0.25} → 'p-rope(p=0.25)'."""
    if type(value) in (str, int, float):  # most values of a large grid
        return str(value)
    if isinstance(value, Mapping):
        inner = ",".join(f"{key}={label(item)}" for key, item in value.items() if key != "type")
        name = label(value["type"]) if "type" in value else ""
        return f"{name}({inner})" if inner or not name else name
    if isinstance(value, list | tuple):
        return "+".join(label(item) for item in value)
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    return str(value)


def label_parts(text: str) -> tuple[str, frozenset[str]]:
    """fope(base=129,sigma=0.10) → fope, {base=129.0, sigma=0.1}: to be compared."""
    name, options = split_label(text)
    pairs = (option.partition("=") for option in options)
    return _number(name), frozenset(
        f"{key}{sign}{_number(value)}" for key, sign, value in pairs if key
    )


def split_label(text: str) -> tuple[str, list[str]]:
    """fope(base=129,sigma=0.10) → fope, [base=129, sigma=0.10]; brackets inside stay whole."""
    name, _, inner = text.removesuffix(")").partition("(")
    return name, [option for option in split_at_commas(inner) if option]


def split_at_commas(text: str) -> list[str]:
    """a=1,b(c=2,d=3) → [a=1, b(c=2,d=3)]: a text at its commas, but for those in brackets."""
    found, depth, start = [], 0, 0
    for i, mark in enumerate(f"{text},"):
        depth += (mark == "(") - (mark == ")")
        if mark == "," and depth == 0:
            found.append(text[start:i])
            start = i + 1
    return found


def _number(text: str) -> str:
    try:
        number = float(text)
    except ValueError:
        return text
    return repr(number) if math.isfinite(number) else text


def corpus_label(corpus: Corpus) -> str:
    """A corpus as a short text: the name of a preset, of a dataset, or of its type."""
    for name, preset in PRESETS.items():
        if corpus == preset:
            return name
    options = corpus.canonical()
    if "dataset" in options:
        return "/".join(str(options[key]) for key in ("dataset", "config") if key in options)
    if "files" in options:
        return f"files({len(options['files'])})"
    return corpus.name


def tokenizer_label(tokenizer: TokenizerRecipe) -> str:
    """A tokenizer as a short text: its name or path, or 'bpe(4096,python-docs)'."""
    if isinstance(tokenizer, str):
        return tokenizer
    return f"{tokenizer.method}({tokenizer.vocabulary},{corpus_label(tokenizer.corpus)})"


def axis_text(path: str, value: Any) -> str:
    """The value of an axis as a short text; OWN where a model keeps its embedding."""
    return OWN if value is None and is_embedding(path) else label(value)


def axis_label(axes: Mapping[str, Any], path: str) -> str:
    """The value of an axis as a short text; ABSENT if there is none."""
    return axis_text(path, axes[path]) if path in axes else ABSENT


def is_embedding(path: str) -> bool:
    """Whether an axis selects the embedding."""
    return path.rpartition(".")[2] == "embedding"


def stage_label(stage: str, axes: Mapping[str, Any], seed: int | None) -> str:
    """A stage with what sets it apart: 'pretrain[embedding=rope,seed=0]'. An axis goes by its
    field, or by its whole path if two axes set fields of one name."""
    fields = [axis.split(".", 1)[1] for axis in axes]
    parts = [
        f"{field if fields.count(field) == 1 else axis}={axis_text(axis, value)}"
        for field, (axis, value) in zip(fields, axes.items(), strict=True)
    ]
    if seed is not None:
        parts.append(f"seed={seed}")
    return f"{stage}[{','.join(parts)}]" if parts else stage


class Labelled(Protocol):
    """What `distinguish` reads of a stage."""

    @property
    def key(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def config(self) -> Mapping[str, Any]: ...


def distinguish(stages: Iterable[Labelled]) -> dict[str, str]:
    """Return the shortest label of each stage, by key, that tells it from all others. Of the fields
    in a section's labels, those stay that tell stages apart which the fields before do not, and the
    seed. Where labels are equal, the settings that differ are added, or the key."""
    short = unique_labels({stage.key: stage for stage in stages}.values())
    sections: dict[tuple[str, str], dict[str, LabelParts]] = {}
    for key, text in short.items():
        if parts := LabelParts.of(text):
            sections.setdefault((parts.head, parts.tail), {})[key] = parts
    for members in sections.values():
        names = list(dict.fromkeys(name for parts in members.values() for name in parts.fields))
        rows = [[parts.fields.get(name, "") for name in names] for parts in members.values()]
        kept = {names[column] for column in telling_columns(rows)} | {"seed"}
        for key, parts in members.items():
            fields = {name: field for name, field in parts.fields.items() if name in kept}
            short[key] = str(LabelParts(parts.head, fields, parts.tail))
    return short


def unique_labels(stages: Iterable[Labelled]) -> dict[str, str]:
    """Return the label of each stage, by key, with more settings where several have the same."""
    groups: dict[str, dict[str, Labelled]] = {}
    for stage in stages:
        groups.setdefault(stage.label, {})[stage.key] = stage
    labels = {key: text for text, members in groups.items() for key in members}
    for text, members in groups.items():
        inner = text.rstrip("]")
        opened, closed = inner + ("," if "[" in inner else "["), text[len(inner) :] or "]"
        if len(members) > 1:
            for key, more in zip(members, _settings_apart([*members.values()]), strict=True):
                labels[key] = f"{opened}{more}{closed}"
    return labels


def telling_columns(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the columns that tell rows apart which the columns before them do not."""
    kept: list[int] = []
    groups = [0] * len(rows)
    for column in range(len(rows[0]) if rows else 0):
        numbers: dict[tuple[int, str], int] = {}
        finer = [
            numbers.setdefault((group, row[column]), len(numbers))
            for group, row in zip(groups, rows, strict=True)
        ]
        if len(numbers) > len(set(groups)):
            groups = finer
            kept.append(column)
    return kept


def _settings_apart(stages: Sequence[Labelled]) -> list[str]:
    settings = [{name: label(value) for name, value in leaves(stage.config)} for stage in stages]
    names = list(dict.fromkeys(name for own in settings for name in own))
    columns = [_endings([own.get(name, ABSENT) for own in settings]) for name in names]
    rows = [*zip(*columns, [stage.key for stage in stages], strict=True)]
    names = [*(name.rpartition(".")[2] for name in names), "key"]
    kept = telling_columns(rows)
    return [",".join(f"{names[i]}={row[i][-MOST_SHOWN:]}" for i in kept) for row in rows]


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what nested mappings hold, each with its path: train.tokens."""
    if not isinstance(value, Mapping):
        yield path, value
        return
    for key, item in value.items():
        yield from leaves(item, f"{path}.{key}" if path else str(key))


def _endings(texts: Sequence[str]) -> list[str]:
    """The shortest ends of paths that tell the same ones apart; other texts as they are."""
    parts = [text.split("/") for text in texts]
    for count in range(1, max(map(len, parts)) + 1):
        ends = ["/".join(part[-count:]) for part in parts]
        if len(set(ends)) == len(set(texts)):
            return ends
    return list(texts)


@dataclass(frozen=True)
class LabelParts:
    """A label in parts: `head` and `tail` are around its fields, which are "name=value" by name."""

    head: str
    fields: Mapping[str, str]
    tail: str

    @classmethod
    def of(cls, label: str) -> LabelParts | None:
        """The parts of a label such as "select[pretrain[embedding=rope,seed=0]]". None for one
        without fields (prepare-data[c4,byte,train]), or with brackets in a value."""
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
        if not self.fields:
            return f"{self.head[:-1]}{self.tail[:-1]}"
        return f"{self.head}{','.join(self.fields.values())}{self.tail}"

    def includes(self, other: LabelParts) -> bool:
        """Whether the other label is this one, or this one without some of its fields."""
        around = (self.head, self.tail) == (other.head, other.tail)
        return around and other.fields.items() <= self.fields.items()
