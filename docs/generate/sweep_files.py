"""The reference of sweep files, from the JSON Schema that `fope-lab schema` prints."""

from __future__ import annotations

import functools
from typing import Any

from docs.generate.markdown import plain
from docs.generate.schema_words import Schema, allowed, alternatives, options_table
from fope_lab.stages.base import FILE_KINDS
from fope_lab.sweep.schema import MAPPINGS, PARTS, SECTIONS, sweep_json_schema


@functools.cache
def _schema() -> dict[str, Any]:
    return sweep_json_schema()


def top_level(_: str) -> str:
    """The options at the top of a file."""
    return options_table(_schema())


def kinds(_: str) -> str:
    """A section for each kind of stage, with its options."""
    definitions = _schema()["$defs"]
    return "\n\n".join(_section(name, definitions[name]) for name in FILE_KINDS.all_names())


def sections(_: str) -> str:
    """A section for each part that several kinds of stages share."""
    shared = {*SECTIONS, *MAPPINGS, *PARTS}
    definitions = _schema()["$defs"]
    return "\n\n".join(_section(name, definitions[name]) for name in sorted(shared))


def _section(name: str, schema: Schema) -> str:
    parts = [f"### {name}"]
    if "description" in schema:
        parts.append(plain(schema["description"]))
    if "properties" in schema:
        return "\n\n".join([*parts, options_table(schema)])
    names = [each for each in schema.get("anyOf", ()) if "enum" in each]
    if names:
        parts.append(f"By name: {', '.join(map(allowed, names))}.")
    for title, each in alternatives(schema):
        parts.append(f"**`{{{title}}}`** {plain(each.get('description', ''))}")
        parts.append(options_table(each))
    return "\n\n".join(parts)
