"""The command `fope-lab embeddings`: what is asked for, answered for people or as JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fope_lab.config.problems import Problem
from fope_lab.embeddings.base import Shape
from fope_lab.embeddings.describe import EXAMPLES, NONE, Description, describe
from fope_lab.embeddings.errors import EmbeddingError
from fope_lab.embeddings.inspect import Resolved, Row, resolve, survey
from fope_lab.embeddings.schema import summary
from fope_lab.embeddings.spec import embedding_names

if TYPE_CHECKING:
    from rich.console import Console

COUNTS = ("head_dim", "train_length", "num_heads", "num_kv_heads")
NUM_HEADS = 8
MAX_FACTOR = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What embeddings are resolved at: a shape, options, and a length beyond the training length.

    The options go to the parts that have them and leave them open.
    """

    shape: Shape
    options: Mapping[str, Any]
    longer: int | None


DEFAULT = Sizes(
    shape=Shape(head_dim=64, num_heads=NUM_HEADS, num_kv_heads=NUM_HEADS, train_length=512),
    options=EXAMPLES,
    longer=None,
)
"""What learned parameters are counted at where no sizes are given."""


def run_embeddings(options: argparse.Namespace, console: Console) -> None:
    """Print what is asked for. Raises EmbeddingError or SweepError for what is wrong in it."""
    sizes = _sizes(options)
    if options.markdown and (options.json or options.name is not None or sizes is not None):
        raise _wrong("--markdown", "is the table of all embeddings: it goes alone")
    if options.name is not None:
        _show_one(describe(_spec(options.name)), sizes, options.json, console)
    else:
        _show_all(sizes, options, console)


def _show_one(
    description: Description, sizes: Sizes | None, as_json: bool, console: Console
) -> None:
    from fope_lab.cli import embeddings_table as tables

    resolved = None
    if sizes is not None:
        definition = description.definition(sizes.options)
        resolved = resolve(definition, sizes.shape, sizes.longer)
    if as_json:
        _print_json(
            {
                **_description_json(description),
                "summary": summary(description.own_parts[0].kind),
                "options": _options_json(description),
                "resolved": _resolved_json(resolved),
            }
        )
    else:
        tables.print_description(description, console)
        if sizes is not None:
            row = Row(description=description, resolved=resolved)
            console.print()
            tables.print_resolved([row], sizes.shape, sizes.options, console)


def _show_all(sizes: Sizes | None, options: argparse.Namespace, console: Console) -> None:
    from fope_lab.cli import embeddings_table as tables

    descriptions = [describe(name) for name in embedding_names()]
    if sizes is not None and "factor" not in sizes.options:
        needed = [description.name for description in descriptions if "factor" in description.open]
        raise _wrong("--factor", f"missing: {', '.join(needed)} need it")
    at = sizes or DEFAULT
    rows = survey(descriptions, at.shape, at.options, at.longer)
    if options.markdown:
        print(tables.markdown(rows, at.shape, at.options))
    elif options.json:
        entries = [
            {
                **_description_json(row.description),
                "resolved": _resolved_json(row.resolved),
                "problems": [str(problem) for problem in row.problems],
            }
            for row in rows
        ]
        _print_json({"embeddings": entries})
    elif sizes is not None:
        tables.print_resolved(rows, at.shape, at.options, console)
    else:
        tables.print_catalogue(rows, at.shape, at.options, console)


def _sizes(options: argparse.Namespace) -> Sizes | None:
    """The sizes that are given, or None where none are."""
    counts = {name: getattr(options, name) for name in COUNTS}
    factor, base = options.factor, options.base
    if all(value is None for value in (*counts.values(), factor, base)):
        return None
    for name, count in counts.items():
        if count is None and name in ("head_dim", "train_length"):
            raise _wrong(_flag(name), "missing: sizes need --head-dim and --train-length")
        if count is not None and count < 1:
            raise _wrong(_flag(name), f"found {count} (allowed: at least 1)")
    if factor is not None and not 1 <= factor <= MAX_FACTOR:
        raise _wrong("--factor", f"found {factor:g} (allowed: 1 to {MAX_FACTOR:,})")
    num_heads = counts["num_heads"] or NUM_HEADS
    given = {"factor": factor, "base": base}
    return Sizes(
        shape=Shape(
            head_dim=counts["head_dim"],
            num_heads=num_heads,
            num_kv_heads=counts["num_kv_heads"] or num_heads,
            train_length=counts["train_length"],
        ),
        options={name: value for name, value in given.items() if value is not None},
        longer=round(factor * counts["train_length"]) if factor is not None else None,
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _wrong(flag: str, found: str) -> EmbeddingError:
    return EmbeddingError(Problem((flag,), found))


def _spec(text: str) -> Any:
    """A description as it is written in a sweep file. Raises SweepError if it is no YAML."""
    if text.replace("-", "").replace("_", "").isalnum():
        return text  # a name: reading YAML would take longer than all the rest
    from fope_lab.config.yaml_document import Document
    from fope_lab.sweep import SweepError

    document = Document(Path("NAME"), text)
    if document.problems:
        raise SweepError(document.problems)
    return document.value


def _description_json(description: Description) -> dict[str, Any]:
    return {
        "name": description.name,
        "kind": description.kind,
        "source": description.source,
        "composition": description.composition,
        "required": description.open,
    }


def _options_json(description: Description) -> list[dict[str, Any]]:
    return [
        {
            "part": part.name,
            "option": option.key,
            "meaning": option.meaning,
            "allowed": {k: v for k, v in option.schema.items() if k != "description"},
            "required": option.default is NONE,
            **({"default": option.default} if option.default is not NONE else {}),
            **({"value": option.value} if option.value is not NONE else {}),
        }
        for part in description.own_parts
        for option in part.options()
    ]


def _resolved_json(resolved: Resolved | None) -> dict[str, Any] | None:
    if resolved is None:
        return None
    return {
        **{name: getattr(resolved.shape, name) for name in COUNTS},
        "pairs_rotating": resolved.rotating,
        "attention_factor": resolved.attention_factor,
        "facts": dict(resolved.facts),
        "learned": {name: list(size) for name, size in resolved.learned.items()},
        "learned_parameters": resolved.parameters,
        "per_layer": resolved.per_layer,
        "frequencies": [
            {
                "length": length,
                "pairs": [
                    {
                        "pair": turn.pair,
                        "frequency": turn.frequency,
                        "wavelength": turn.wavelength,
                        "cycles": turn.cycles,
                    }
                    for turn in turns
                ],
            }
            for length, turns in resolved.turns.items()
        ],
    }


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False))
