"""A point of the grid: the value of every axis, and a seed; a section with these values set; and
the problems of a file, some of which are those of a few points."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fope_lab.config.problems import FieldPath, Problem, SweepError, format_path, shown
from fope_lab.config.yaml_document import Document
from fope_lab.stages.labels import label


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


MAX_PROBLEMS = 1_000


class ProblemCollector:
    """Collects problems by place; one that several grid points share names them."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._problems: list[Problem] = []
        self._at_points: dict[Problem, list[GridPoint]] = {}

    def __bool__(self) -> bool:
        return bool(self._document.problems or self._problems or self._at_points)

    def add(self, *problems: Problem) -> None:
        """Add problems that do not depend on the grid, or that are located in another file."""
        self._problems += problems

    def add_at_point(self, point: GridPoint, *problems: Problem) -> None:
        """Add problems that occur at one grid point."""
        for problem in problems:
            self._at_points.setdefault(problem, []).append(point)

    def is_full(self) -> bool:
        return len(self._problems) + len(self._at_points) >= MAX_PROBLEMS

    @property
    def axes_known(self) -> bool:
        """Whether the grid is right; else an axis may be meant to set what is missing."""
        return not self.concern("grid", "zip", "include", "exclude")

    def concern(self, *sections: str) -> bool:
        return any(p.file is None and p.path[:1] == (s,) for p in self._problems for s in sections)

    def error(self, points: Sequence[GridPoint] = ()) -> SweepError:
        """Return the error that holds every problem; `points` is the whole grid."""
        found = [*self._document.problems, *self._problems, *self._of_points(points)]
        return SweepError(p if p.file else self._document.locate(p) for p in found)

    def _of_points(self, grid: Sequence[GridPoint]) -> Iterator[Problem]:
        """One problem for an axis if all its values have it; else it names those that do."""
        by_axis: dict[tuple[FieldPath, str], dict[FieldPath, list[GridPoint]]] = {}
        for problem, points in itertools.islice(self._at_points.items(), MAX_PROBLEMS):
            at = problem.path
            axis = at[:2] if at[0] in ("grid", "zip") and len(at) == 3 else at
            by_axis.setdefault((axis, problem.message), {})[at] = points
        all_values = functools.cache(lambda axis: _values(axis, grid).keys())
        for (axis, message), places in by_axis.items():
            at = axis if len(places) > 1 else next(iter(places))
            points = [point for found in places.values() for point in found]
            parts = []
            for other, choice in points[0].choices.items():
                if at[0] == "include" or other in at[1:2] or at[0] == choice.origin[0] == "zip":
                    continue  # its place in the file tells the value
                values = _values(other, points)
                if values.keys() != all_values(other):
                    parts.append(f"{other} {', '.join(values.values())}")
            only = f" (with {'; '.join(parts)})" if parts else ""
            yield Problem(at, f"{message}{only}")


def _values(axis: str, points: Iterable[GridPoint]) -> dict[str, str]:
    return {
        json.dumps(point.choices[axis].value, sort_keys=True): label(point.choices[axis].value)
        for point in points
        if axis in point.choices
    }
