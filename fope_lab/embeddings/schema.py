"""The JSON Schema of an embedding's description, so that editors complete and check it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

from fope_lab.config.annotations import Doc
from fope_lab.embeddings.base import embedding_types, transform_types
from fope_lab.embeddings.presets import PRESETS
from fope_lab.embeddings.spec import TRANSFORMS, option_types


def embedding_json_schema() -> dict[str, Any]:
    """Every preset and mechanism, by name alone where nothing is required, or with options."""
    mechanisms = _objects(embedding_types())
    presets = {
        name: _object(name, preset.source, parts_of(preset.composition))
        for name, preset in PRESETS.items()
    }
    return _by_name_or_object({**mechanisms, **presets})


def parts_of(composition: Mapping[str, Any]) -> list[tuple[type[Any], Mapping[str, Any]]]:
    """The mechanism of a preset's composition and its transforms, each with the options set."""
    transforms = composition.get(TRANSFORMS, ())
    own = {option: value for option, value in composition.items() if option != "type"}
    return [
        (embedding_types()[composition["type"]], own),
        *((transform_types()[part["type"]], part) for part in transforms),
    ]


def option_json_schema(part: type[Any], option: str) -> dict[str, Any]:
    """What an option of a mechanism or transform may be, and what it means."""
    if option == TRANSFORMS:
        schema: dict[str, Any] = {
            "type": "array",
            "items": _by_name_or_object(_objects(transform_types())),
        }
    else:
        from pydantic import TypeAdapter

        schema = TypeAdapter(option_types(part)[option]).json_schema()
        # Of `Annotated[…] | None` pydantic describes the alternative, and editors show the whole.
        for alternative in schema.get("anyOf", ()):
            alternative.pop("description", None)
    return {**schema, "description": meaning(part, option)}


def meaning(part: type[Any], option: str) -> str:
    """What an option of a mechanism or transform means."""
    return next((means.text for means in _means(option_types(part)[option])), "")


def summary(part: type[Any]) -> str:
    """The first line of what a mechanism or transform says about itself."""
    return (part.__doc__ or part.__name__).strip().splitlines()[0]


def _means(annotation: Any) -> Iterator[Doc]:
    """The meanings in an annotated type, also of the alternatives of a union."""
    for inside in get_args(annotation):
        if isinstance(inside, Doc):
            yield inside
        else:
            yield from _means(inside)


def _objects(kinds: Mapping[str, type[Any]]) -> dict[str, dict[str, Any]]:
    """Mechanisms or transforms by name, in an order that does not depend on what is imported."""
    return {
        name: _object(name, summary(kinds[name]), [(kinds[name], {})]) for name in sorted(kinds)
    }


def _by_name_or_object(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    bare = [name for name, schema in objects.items() if schema["required"] == ["type"]]
    return {"anyOf": [{"enum": bare}, *objects.values()]}


def _object(
    name: str, description: str, parts: Iterable[tuple[type[Any], Mapping[str, Any]]]
) -> dict[str, Any]:
    """A mapping with the options of all parts; what a preset sets for a part is its default."""
    properties: dict[str, Any] = {"type": {"const": name}}
    required = ["type"]
    for part, given in parts:
        for field in dataclasses.fields(part):
            if field.name == TRANSFORMS and TRANSFORMS in given:
                continue  # a preset's own, which no option changes
            properties[field.name] = option_json_schema(part, field.name)
            default = given.get(field.name, field.default)
            if default is dataclasses.MISSING:
                required.append(field.name)
            else:
                listed = isinstance(default, tuple)
                properties[field.name]["default"] = list(default) if listed else default
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
