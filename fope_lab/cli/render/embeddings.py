"""What `fope-lab embeddings` prints: presets, the options of one, frequencies at a shape."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from rich.columns import Columns
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fope_lab.config.options import summary
from fope_lab.embeddings.base import Shape
from fope_lab.embeddings.describe import Description, Inspection, InspectionRow, Part
from fope_lab.embeddings.frequencies import TRANSFORM_TYPES
from fope_lab.embeddings.spec import TRANSFORMS

NOTHING = "–"
CATALOGUE = ("embedding", "composition", "learns", "needs", "paper")
TYPES = {"boolean": "true, false", "string": "text"}
SHAPE = ("head_dim", "num_heads", "num_kv_heads", "train_length")
PAIR = ("pair", "frequency", "wavelength", "cycles")
BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def print_catalogue(
    rows: Sequence[InspectionRow], shape: Shape, options: Mapping[str, Any], console: Console
) -> None:
    """Print all presets with composition, learned parameters, required options and paper."""
    table = _table(*CATALOGUE)
    for row in rows:
        table.add_row(*map(Text, _catalogue_cells(row)))
    console.print(table)
    _print(console, f"\n{_caption(shape, options)}")
    _print(console, "fope-lab embeddings NAME explains every option of an embedding.")


def _catalogue_cells(row: InspectionRow) -> tuple[str, ...]:
    of = row.description
    needs = ", ".join(of.open) or NOTHING
    return of.name, in_words(of.composition), _learned(row.inspection), needs, of.source


def _learned(inspection: Inspection | None) -> str:
    if inspection is None:
        return "?"
    if not inspection.parameters:
        return NOTHING
    where = "per layer" if inspection.definition.per_layer else "in all"
    return f"{inspection.parameters:,} {where}"


def _caption(shape: Shape, options: Mapping[str, Any]) -> str:
    return f"Learned parameters at {_at(shape, options)} where it is needed."


def _at(shape: Shape, options: Mapping[str, Any]) -> str:
    sizes = {name: getattr(shape, name) for name in SHAPE}
    if shape.num_kv_heads == shape.num_heads:
        del sizes["num_kv_heads"]
    return ", ".join(f"{name} {as_yaml(value)}" for name, value in {**sizes, **options}.items())


def print_description(description: Description, console: Console) -> None:
    """Print the composition of one embedding or transform, and every option of its parts."""
    _heading(console, description.name, f"{description.kind}, {description.source}")
    parts = description.own_parts
    mechanism, *transforms = (
        {**part.composition, **dict.fromkeys(part.open, "…")} for part in parts
    )
    whole = as_yaml({**mechanism, TRANSFORMS: transforms} if transforms else mechanism)
    if whole != description.name:
        _print(console, whole)
    for part in parts:
        if len(parts) > 1 or part.name != description.name:
            _print(console, "")
            _heading(console, part.name, part.kind.source)
        _print(console, summary(part.kind))
        console.print(_options_table(part) if part.options() else "no options")


def _options_table(part: Part) -> Table:
    value = ["value"] if part.chosen else []
    table = _table("option", "allowed", "default", *value, "meaning")
    for name, option in part.options().items():
        allowed = f"list of {', '.join(TRANSFORM_TYPES.all())}"
        chosen = as_yaml(part.chosen[name]) if name in part.chosen else ""
        table.add_row(
            Text(name, style="cyan"),
            Text(allowed if name == TRANSFORMS else _schema_in_words(option.json_schema())),
            Text("required" if option.required else as_yaml(option.default)),
            *(Text(chosen, style="bold") for _ in value),
            Text(option.doc),
        )
    return table


def _schema_in_words(schema: Mapping[str, Any]) -> str:
    """The values that a JSON Schema allows, such as 'number > 1' or 'official, geometric'."""
    if "anyOf" in schema:
        return " or ".join(map(_schema_in_words, schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return ", ".join(map(as_yaml, schema.get("enum", [schema.get("const")])))
    numbers = {name: schema[name] for name in BOUNDS if name in schema}
    bounds = [
        f"{BOUNDS[name]} {of if isinstance(of, int) else re.sub(r'e[+]0*', 'e', f'{of:g}')}"
        for name, of in numbers.items()
    ]
    kind = str(schema.get("type", "anything"))
    return " ".join([TYPES.get(kind, kind), ", ".join(bounds)]).strip()


def print_inspections(
    rows: Sequence[InspectionRow], shape: Shape, options: Mapping[str, Any], console: Console
) -> None:
    """Print the numbers of embeddings at a shape, and the frequencies of those that rotate."""
    _print(console, f"At {_at(shape, options)}:\n")
    table = _table("embedding", "pairs", "attention\nfactor", "learns", "numbers")
    for column in table.columns[1:3]:
        column.justify = "right"
    names: dict[tuple[float, ...], list[str]] = {}  # several may share their frequencies
    for row in rows:
        table.add_row(*map(Text, _inspection_cells(row)))
        if row.inspection is None:
            continue
        for length, frequencies in row.inspection.frequencies.items():
            at = f" at {length:,} tokens" if row.inspection.follows_length else ""
            names.setdefault(frequencies, []).append(f"{row.description.name}{at}")
    console.print(table)
    if names:
        _print(
            console,
            "\nEach pair's frequency (radians per token), wavelength (tokens) and cycles in the"
            f" {shape.train_length:,} tokens of train_length. Where frequencies change with the"
            " length of the sequence, the table says at which.\n",
        )
        length = shape.train_length
        blocks = [_frequency_block(", ".join(same), pairs, length) for pairs, same in names.items()]
        console.print(Columns(blocks, padding=(0, 4, 0, 0)))


def _inspection_cells(row: InspectionRow) -> tuple[str, ...]:
    name, inspection = row.description.name, row.inspection
    if inspection is None:
        problems = "; ".join(problem.message for problem in row.problems)
        return name, NOTHING, NOTHING, NOTHING, problems
    pairs, factor = NOTHING, NOTHING
    if inspection.rotating is not None:
        pairs = f"{inspection.rotating} of {inspection.shape.head_dim // 2}"
        factor = f"{inspection.definition.attention_factor(inspection.shape):.4f}"
    facts = inspection.definition.facts(inspection.shape)
    numbers = ", ".join(f"{name} {value:.4g}" for name, value in facts.items())
    return name, pairs, factor, _learned(inspection), numbers


def _frequency_block(title: str, frequencies: Sequence[float], train_length: int) -> Text:
    """A table as plain text, because rich is slow to lay out hundreds of rows."""
    rows: list[tuple[str, ...]] = [PAIR]
    for pair, omega in enumerate(frequencies):
        numbers = ("0", NOTHING, "0")
        if omega:
            wavelength = 2 * math.pi / omega
            numbers = f"{omega:.7f}", f"{wavelength:,.2f}", f"{train_length / wavelength:.3f}"
        rows.append((str(pair), *numbers))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    header, *lines = ("  ".join(map(str.rjust, row, widths)) for row in rows)
    bold = [*textwrap.wrap(title, len(header)), header]
    return Text.assemble(("\n".join(bold), "bold"), "\n", "\n".join([*lines, " "]), no_wrap=True)


def in_words(composition: Mapping[str, Any]) -> str:
    """A short form: {type: fourier, transforms: [clip_floor]} → 'fourier: clip_floor'."""
    own = {option: value for option, value in composition.items() if option != TRANSFORMS}
    mechanism, *transforms = map(_part_in_words, (own, *composition.get(TRANSFORMS, ())))
    return f"{mechanism}: {', '.join(transforms)}" if transforms else mechanism


def _part_in_words(part: Mapping[str, Any]) -> str:
    options = {option: value for option, value in part.items() if option != "type"}
    return f"{part['type']} {as_yaml(options)}" if options else str(part["type"])


def as_yaml(value: Any) -> str:
    """A value as a sweep file writes it; a part without options is written as its name."""
    if isinstance(value, Mapping):
        if value.keys() == {"type"}:
            return str(value["type"])
        return f"{{{', '.join(f'{key}: {as_yaml(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_yaml, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def _table(*columns: str) -> Table:
    table = Table(*columns, box=None, pad_edge=False)
    for column in table.columns:
        column.overflow = "fold"
    return table


def _print(console: Console, text: str | Text) -> None:
    console.print(text, markup=False, highlight=False)


def _heading(console: Console, name: str, text: str) -> None:
    _print(console, Text.assemble((name, "bold"), f": {text}"))
