"""A point of the grid: the value of every axis, and a seed; and a section with these values set."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fope_lab.config.problems import FieldPath, Problem, format_path, shown


@dataclass(frozen=True)
class Choice:
    """The value of one axis at a grid point, and the place in the file where the value stands."""

    value: Any
    origin: FieldPath

    @functools.cached_property
    def comparable(self) -> str:
        return comparable(self.value)


@dataclass(frozen=True)
class GridPoint:
    """One combination of the axes' values, under one seed."""

    choices: Mapping[str, Choice]
    seed: int


def same_value(one: Any, other: Any) -> bool:
    """Return whether two values of a sweep file are equal: 1 equals 1.0, but not `true`."""
    return one is other or comparable(one) == comparable(other)


def comparable(value: Any) -> str:
    """Return a text that equal values have in common, and no others."""
    return json.dumps(_exact(value))


def _exact(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _exact(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_exact(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@dataclass(frozen=True, eq=False)
class StageFields:
    """A stage's section at a grid point, with the values of `axes` set. `origins` has the place in
    the file of every value that an axis set, by its path, and `created` that of sections made
    around such a value. `problems` are the axes that could not be set. A section equals itself
    alone, as a key of a cache."""

    name: str
    fields: dict[str, Any]
    axes: Mapping[str, Any]
    origins: Mapping[FieldPath, FieldPath]
    created: Mapping[FieldPath, FieldPath]
    problems: tuple[Problem, ...]

    def locate(self, path: FieldPath) -> FieldPath:
        """Return the place in the file of a path inside the section."""
        if path in self.created:
            return self.created[path]
        for size in range(len(path), 0, -1):
            if path[:size] in self.origins:
                return (*self.origins[path[:size]], *path[size:])
        return ("stages", self.name, *path)


def apply_axes(name: str, section: Mapping[str, Any], choices: Mapping[str, Choice]) -> StageFields:
    """Return the section `name` with the values that `choices` has for its axes. Whole objects are
    set before the paths inside them, whatever the order in the file. A preset's name becomes {type:
    name} when an axis sets an option of it."""
    fields: dict[str, Any] = _copy(section)
    origins: dict[FieldPath, FieldPath] = {}
    created: dict[FieldPath, FieldPath] = {}
    problems = []
    for axis, choice in sorted(choices.items(), key=lambda item: item[0].count(".")):
        try:
            path, sections = _set(fields, axis.split(".")[1:], _copy(choice.value))
        except LookupError as error:
            problems.append(Problem(choice.origin, str(error)))
        else:
            origins[path] = choice.origin
            created |= dict.fromkeys(sections - created.keys(), choice.origin)
    axes = {axis: choice.value for axis, choice in choices.items()}
    return StageFields(name, fields, axes, origins, created, tuple(problems))


def _set(
    section: dict[str, Any], dotted: list[str], value: Any
) -> tuple[FieldPath, set[FieldPath]]:
    """Set a field; returns its path and the sections created. Raises LookupError if it can't be."""
    target: Any = section
    path: FieldPath = ()
    created: set[FieldPath] = set()
    for depth, part in enumerate(dotted):
        key = _index(part, target, path) if isinstance(target, list) else part
        path = (*path, key)
        if depth == len(dotted) - 1:
            target[key] = value
            break
        old = target.get(key) if isinstance(target, dict) else target[key]
        if old is None:
            if dotted[depth + 1].isdecimal():
                raise LookupError(f"{format_path(path)} is not a list, so it has no items")
            created.add(path)
        target[key] = _with_fields(old, path)
        target = target[key]
    return path, created


def _index(part: str, items: list[Any], path: FieldPath) -> int:
    if part.isdecimal() and int(part) < len(items):
        return int(part)
    allowed = f"0 to {len(items) - 1}" if items else "none"
    raise LookupError(
        f"{format_path(path)} is a list without an item {part!r} (allowed: {allowed})"
    )


def _with_fields(value: Any, path: FieldPath) -> dict[str, Any] | list[Any]:
    """The value in a form whose fields can be set. Raises LookupError."""
    if isinstance(value, dict | list):
        return value
    if value is None:
        return {}
    if isinstance(value, str) and path == ("model",):
        return {"scale": value}
    if isinstance(value, str) and {"embedding", "corpus", "over", "analysis"} & set(path):
        return {"type": value}
    raise LookupError(f"{format_path(path)} is {shown(value)}, which has no fields")


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value
