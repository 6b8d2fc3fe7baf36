"""What `fope-lab embeddings` prints: presets, the options of one, frequencies at a shape."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fope_lab.config.options import summary
from fope_lab.embeddings.base import (
    EMBEDDING_TYPES,
    PLACES,
    Embedding,
    EmbeddingError,
    Shape,
    check_definition,
)
from fope_lab.embeddings.frequencies import TRANSFORM_TYPES
from fope_lab.embeddings.presets import OPEN, PRESETS
from fope_lab.embeddings.spec import (
    EMBEDDINGS,
    PATTERN,
    TRANSFORMS,
    Part,
    embedding_names,
    example,
    named,
    parse_embedding,
    parts_of,
)

NOTHING = "–"
CATALOGUE = ("embedding", "composition", "learns", "needs", "paper")
TYPES = {"boolean": "true, false", "string": "text"}
SHAPE = Shape(head_dim=64, num_heads=8, num_kv_heads=8, train_length=512)
"""Where the table of presets counts learned parameters."""
BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def print_catalogue(console: Console) -> None:
    """Print all presets by the place where they act, each with composition, learned parameters,
    required options and paper."""
    for place, heading in PLACES.items():
        table = _table(*CATALOGUE)
        table.columns[0].no_wrap = True
        for name in (name for name in embedding_names() if place_of(name) == place):
            needs = ", ".join(EMBEDDINGS.entry(name).required) or NOTHING
            words = in_words(named(name).composition)
            cells = (words if words != name else NOTHING, _example_learns(name), needs)
            table.add_row(*map(Text, (name, *cells, named(name).source)))
        _print(console, Text(heading, style="bold"))
        console.print(table)
        console.print()
    _print(console, f"\nLearned parameters at {_sizes(SHAPE)}.")
    _print(console, "fope-lab embeddings NAME explains every option of an embedding.")


def place_of(name: str) -> str:
    """Where a preset or mechanism acts."""
    return EMBEDDING_TYPES.all()[named(name).composition["type"]].place


def _example_learns(name: str) -> str:
    try:
        definition = parse_embedding(example(name))
        check_definition(definition, SHAPE)
    except EmbeddingError:  # an added one, with a required option that has no example
        return "?"
    return _learned(definition, SHAPE)


def _learned(definition: Embedding, shape: Shape) -> str:
    learned = definition.learned_parameters(shape, num_layers=1)
    if not learned:
        return NOTHING
    return f"{learned:,} {'per layer' if definition.per_layer else 'in all'}"


def _sizes(shape: Shape) -> str:
    sizes = [f"head_dim {shape.head_dim}", f"num_heads {shape.num_heads}"]
    if shape.num_kv_heads != shape.num_heads:
        sizes.append(f"num_kv_heads {shape.num_kv_heads}")
    return ", ".join([*sizes, f"train_length {shape.train_length}"])


def print_description(name: str, composition: Mapping[str, Any], console: Console) -> None:
    """Print what an embedding or a transform is made of, and every option of its parts."""
    other = "mechanism" if name in EMBEDDINGS.all_names() else "transform"
    _heading(console, name, f"{'preset' if name in PRESETS else other}, {named(name).source}")
    shown = "default" if composition == named(name).composition else "value"
    if composition != {"type": name}:
        _print(console, as_yaml(composition))
    parts = parts_of(composition)
    for part in parts:
        if len(parts) > 1 or part.kind.name != name:
            _print(console, "")
            _heading(console, part.kind.name, part.kind.source)
        _print(console, summary(part.kind))
        console.print(_options_table(part, shown) if part.options else "no options")


def _options_table(part: Part, shown: str) -> Table:
    table = _table("option", "allowed", shown, "meaning")
    for name, option in part.options.items():
        allowed = f"list of {', '.join(TRANSFORM_TYPES.all())}"
        table.add_row(
            Text(name, style="cyan"),
            Text(allowed if name == TRANSFORMS else _schema_in_words(option.json_schema())),
            Text("required" if option.required else as_yaml(option.default)),
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


def print_numbers(
    definition: Embedding, shape: Shape, length: int | None, console: Console
) -> None:
    """Print the numbers of an embedding at a shape, in a sequence of `length` tokens."""
    facts = {name: f"{value:.4g}" for name, value in definition.facts(shape).items()}
    numbers = {"learned parameters": _learned(definition, shape), **facts}
    frequencies = definition.pair_frequencies(shape, length)
    if frequencies:
        rotating = sum(omega != 0 for omega in frequencies)
        numbers["pairs that rotate"] = f"{rotating} of {len(frequencies)}"
        numbers["attention factor"] = f"{definition.attention_factor(shape):.4f}"
    _print(console, f"\nAt {_sizes(shape)}:")
    for name, number in numbers.items():
        _print(console, f"{name}: {number}")
    if not frequencies:
        return
    table = _table("pair", "frequency", "wavelength", "cycles")
    for column in table.columns:
        column.justify = "right"
    for pair, omega in enumerate(frequencies):
        cells = ("0", NOTHING, "0")
        if omega:
            wavelength = 2 * math.pi / omega
            cycles = shape.train_length / wavelength
            cells = f"{omega:.7f}", f"{wavelength:,.2f}", f"{cycles:.3f}"
        table.add_row(str(pair), *cells)
    _print(
        console,
        "\nEach pair's frequency (radians per token), wavelength (tokens) and cycles in the"
        f" {shape.train_length:,} tokens of train_length, in a sequence of"
        f" {length or shape.train_length:,} tokens.\n",
    )
    console.print(table)


def in_words(composition: Mapping[str, Any]) -> str:
    """A short form: {type: fourier, transforms: [clip_floor]} → 'fourier: clip_floor'; of a
    pattern, how often each layer comes in turn: '3 × rope (window), nope'."""
    if PATTERN in composition:
        return _pattern_in_words(composition)
    own = {option: value for option, value in composition.items() if option != TRANSFORMS}
    mechanism, *transforms = map(_part_in_words, (own, *composition.get(TRANSFORMS, ())))
    return f"{mechanism}: {', '.join(transforms)}" if transforms else mechanism


def _pattern_in_words(composition: Mapping[str, Any]) -> str:
    words = []
    for layer in composition[PATTERN]:
        text, window = in_words(layer["embedding"]), layer.get("window")
        if window is not None:
            text += " (window)" if window == OPEN else f" (window {window})"
        words.append(text)
    turns = [(text, len(list(same))) for text, same in itertools.groupby(words)]
    return ", ".join(f"{count} × {text}" if count > 1 else text for text, count in turns)


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
