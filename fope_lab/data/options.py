"""From a mapping of a sweep file to a frozen dataclass of options, and to its JSON Schema."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar, get_type_hints

from fope_lab.config.problems import FieldPath, Problem, unknown_name
from fope_lab.data.problems import DataError

T = TypeVar("T")


def build(cls: type[T], options: Mapping[str, Any], name: str, at: FieldPath = ()) -> T:
    """An instance of a dataclass from its options.

    `name` is what errors call it. Raises DataError with every problem: unknown and missing
    options, values of a wrong type, and whatever the class itself refuses with a ValueError.
    """
    from pydantic import TypeAdapter, ValidationError

    types = option_types(cls)
    problems = [
        unknown_name((*at, option), f"option of {name}", option, sorted(types))
        for option in options
        if option not in types
    ]
    values = {}
    for option, value in options.items():
        if option not in types:
            continue
        try:
            values[option] = TypeAdapter(types[option]).validate_python(value, strict=True)
        except ValidationError as error:
            expected = dict.fromkeys(
                detail["msg"].removeprefix("Input should be ") for detail in error.errors()
            )
            problems.append(Problem((*at, option), f"found {value!r}", " or ".join(expected)))
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        if field.default is dataclasses.MISSING and field.name not in options:
            problems.append(Problem((*at, field.name), f"is missing: {name} needs it"))
    if problems:
        raise DataError(problems)
    try:
        return cls(**values)
    except DataError as error:
        raise DataError(error.problems, at) from error
    except ValueError as error:
        raise DataError(Problem(at, str(error))) from error


def set_options(value: Any) -> dict[str, Any]:
    """The options of an instance that differ from their defaults.

    An option that is added later, with a default, so leaves what is written here as it was.
    """
    options = {}
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if item != field.default:
            options[field.name] = list(item) if isinstance(item, tuple) else item
    return options


def schema(cls: type[Any], fixed: Mapping[str, Any], preset: Any = None) -> dict[str, Any]:
    """The JSON Schema of a dataclass's options beside the `fixed` keys.

    With a `preset`, an instance, its values are the defaults and nothing but `fixed` is required.
    """
    from pydantic import TypeAdapter

    properties: dict[str, Any] = {key: {"const": value} for key, value in fixed.items()}
    required = list(fixed)
    for field in dataclasses.fields(cls):
        properties[field.name] = TypeAdapter(option_types(cls)[field.name]).json_schema()
        default = field.default if preset is None else getattr(preset, field.name)
        if default is dataclasses.MISSING:
            required.append(field.name)
        elif default is not None:
            properties[field.name]["default"] = default
    return {
        "type": "object",
        "description": (cls.__doc__ or "").strip().splitlines()[0],
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def option_types(cls: type[Any]) -> dict[str, Any]:
    """The options of a dataclass with their annotated types, in order."""
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}
