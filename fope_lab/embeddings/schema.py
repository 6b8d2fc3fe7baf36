"""The JSON Schema of an embedding's description, so that editors complete and check it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from fope_lab.embeddings.base import embedding_types, transform_types
from fope_lab.embeddings.presets import PRESETS
from fope_lab.embeddings.spec import TRANSFORMS, option_types


def embedding_json_schema() -> dict[str, Any]:
    """Every preset and mechanism, by name alone where nothing is required, or with options."""
    mechanisms = {name: {"type": name} for name in embedding_types()}
    compositions: dict[str, Mapping[str, Any]] = {**mechanisms, **PRESETS}
    objects = {
        name: _object(
            name,
            [
                embedding_types()[composition["type"]],
                *(transform_types()[part["type"]] for part in composition.get(TRANSFORMS, ())),
            ],
        )
        for name, composition in compositions.items()
    }
    return _by_name_or_object(objects)


def _transform_schema() -> dict[str, Any]:
    return _by_name_or_object(
        {name: _object(name, [part]) for name, part in transform_types().items()}
    )


def _by_name_or_object(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    bare = [name for name, schema in objects.items() if schema["required"] == ["type"]]
    return {"anyOf": [{"enum": bare}, *objects.values()]}


def _object(name: str, parts: Iterable[type[Any]]) -> dict[str, Any]:
    mechanism, *transforms = parts
    properties: dict[str, Any] = {"type": {"const": name}}
    required = ["type"]
    for part in (mechanism, *transforms):
        for field in dataclasses.fields(part):
            if field.name != TRANSFORMS:
                properties[field.name] = _option_schema(part, field)
            elif not transforms:
                properties[TRANSFORMS] = {"type": "array", "items": _transform_schema()}
            if field.default is dataclasses.MISSING:
                required.append(field.name)
    return {
        "type": "object",
        "description": _summary(mechanism),
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _option_schema(part: type[Any], field: dataclasses.Field[Any]) -> dict[str, Any]:
    from pydantic import TypeAdapter

    schema = TypeAdapter(option_types(part)[field.name]).json_schema()
    if field.default is not dataclasses.MISSING:
        schema["default"] = field.default
    return schema


def _summary(part: type[Any]) -> str:
    return (part.__doc__ or part.__name__).strip().splitlines()[0]
