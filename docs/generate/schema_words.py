"""JSON Schemas of sweep files as tables of options."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from docs.generate.markdown import plain, table

BOUNDS = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
TYPES = {"string": "text", "object": "mapping", "boolean": "true or false", "null": "null"}
Schema = Mapping[str, Any]


def options_table(schema: Schema) -> str:
    """A table of the options of an object: what each allows, its default and its meaning."""
    required = schema.get("required", ())
    rows = [
        (f"`{name}`", allowed(option), _default(option, name in required), _meaning(option))
        for name, option in schema.get("properties", {}).items()
        if isinstance(option, dict)
    ]
    return table(("option", "allowed", "default", "meaning"), rows)


def allowed(schema: Schema) -> str:
    """The values that a schema allows, in words; a reference is a link to its section."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(allowed, schema["anyOf"])))
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return ", ".join(f"`{_value(value)}`" for value in values)
    if schema.get("type") == "array" and "items" in schema:
        return f"list of {allowed(schema['items'])}" if schema["items"] else "list"
    bounds = [f"{sign} {_value(schema[name])}" for name, sign in BOUNDS.items() if name in schema]
    kind = str(schema.get("type", "anything"))
    return plain(" ".join([TYPES.get(kind, kind), ", ".join(bounds)]).strip())


def alternatives(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """The alternatives of a schema that have options, each with its name in sweep files."""
    for alternative in schema.get("anyOf", [schema]):
        properties = alternative.get("properties")
        if properties:
            yield _name(alternative), alternative


def _name(schema: Schema) -> str:
    """What tells an alternative apart: its type or task, or its first option."""
    properties = schema["properties"]
    for key in ("type", "task", "train"):
        value = properties.get(key, {})
        if isinstance(value, dict) and "const" in value:
            return f"{key}: {value['const']}"
    return f"{next(iter(properties))}: …"


def _default(option: Schema, required: bool) -> str:
    if required:
        return "required"
    return f"`{_value(option['default'])}`" if option.get("default") is not None else "–"


def _meaning(option: Schema) -> str:
    inner = option.get("properties")
    fields = [
        f"`{name}`: {plain(each.get('description', ''))}" for name, each in (inner or {}).items()
    ]
    return " ".join([plain(option.get("description", "")), *fields])


def _value(value: Any) -> str:
    if isinstance(value, float) and value == int(value):
        return f"{value:g}" if abs(value) >= 1e7 else str(int(value))
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
