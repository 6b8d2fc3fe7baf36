"""The grid points of a sweep: the value of every axis, for every combination and seed; and what is
wrong with a file, be it at some of these points.

The axes of `grid` multiply. The lists of `zip` are one axis together. `include` appends grid points
and `exclude` drops those that match. An axis is called by the path `stage.field.…` that it sets;
tables, tags and claims use that name too.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fope_lab.config.problems import (
    FieldPath,
    Problem,
    SweepError,
    did_you_mean,
    first_names,
    name_list,
    nearest_name,
    shown,
)
from fope_lab.config.yaml_document import Document
from fope_lab.stages.labels import label
from fope_lab.sweep.sweep_file import SweepFile

PARTS = 100
"""How many sections and axes together each of `max_stages` grid points may have."""
MAX_PROBLEMS = 1_000
NOT_AN_AXIS = {"kind": "", "seed": "; use seeds", "select": ""}
"""Fields that no axis can set, and what to do instead."""


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


class Expansion:
    """The grid points of a sweep; wrong axes and entries are reported and left out. `selectors` are
    the axes of the stages in other files that this file refers to, with their values: such an axis
    selects a stage there."""

    def __init__(
        self, file: SweepFile, selectors: Mapping[str, Sequence[Any]], problems: ProblemCollector
    ) -> None:
        self._file, self._selectors, self._problems = file, selectors, problems
        self._axes = {**file.grid, **file.zip}

    def points(self) -> list[GridPoint]:
        file = self._file
        grid, zipped = self._choices("grid", file.grid), self._choices("zip", file.zip)
        for axis in grid.keys() & zipped.keys():
            self._problems.add(Problem(("zip", axis), "this axis is in grid too"))
        lengths = {axis: len(values) for axis, values in file.zip.items()}
        if len(set(lengths.values())) > 1:
            found = name_list(f"{axis} {length}" for axis, length in lengths.items())
            self._problems.add(Problem(("zip",), f"the lists must be equally long; found {found}"))
        included = [self._included(i, values) for i, values in enumerate(file.include)]
        complete = [choices for choices in included if choices]

        rows = [dict(zip(zipped, row, strict=True)) for row in zip(*zipped.values(), strict=False)]
        rows = rows or [{}]
        combined = len(rows) * math.prod(map(len, grid.values()))
        count = (combined + len(complete)) * len(file.every_seed)
        parts = len(file.stages) + len(self._axes)
        if count > file.max_stages or count * parts > file.max_stages * PARTS:
            number = f"{count:,}" if count < 10**15 else "over 10^15"
            found = f"{number} grid points with all seeds"
            if count <= file.max_stages:
                found += f", each of {parts:,} stages and axes"
            at = "grid" if file.grid else "zip" if file.zip else "seeds"
            if file.seed_rule is not None and file.seed_rule.at_most > combined:
                at = "seeds"
            self._problems.add(file.too_many(found, at))
            return []
        combinations = [
            {**row, **dict(zip(grid, values, strict=True))}
            for row in rows
            for values in itertools.product(*grid.values())
        ]
        if complete and not self._axes:
            combinations = []  # include lists all grid points
        combinations = self._without_excluded(combinations) + complete
        if not combinations:
            self._problems.add(Problem(("exclude",), "leaves no grid point"))
        return [GridPoint(choices, seed) for choices in combinations for seed in file.every_seed]

    def _choices(self, part: str, axes: Mapping[str, Sequence[Any]]) -> dict[str, list[Choice]]:
        choices = {
            axis: [Choice(value, (part, axis, i)) for i, value in enumerate(values)]
            for axis, values in axes.items()
            if self._is_axis(axis, (part, axis))
        }
        for axis, of_axis in choices.items():
            for choice in of_axis:
                self._check_selected(axis, choice)
        return choices

    def _included(self, i: int, values: Mapping[str, Any]) -> dict[str, Choice] | None:
        """The choices of an entry of `include`; None if it is incomplete."""
        choices = {axis: Choice(value, ("include", i, axis)) for axis, value in values.items()}
        for axis, choice in list(choices.items()):
            if not self._is_axis(axis, choice.origin):
                del choices[axis]
            self._check_selected(axis, choice)
        if missing := [axis for axis in self._axes if axis not in values]:
            message = f"a grid point must set every axis; missing: {name_list(missing)}"
            self._problems.add(Problem(("include", i), message))
            return None
        return choices

    def _is_axis(self, axis: str, path: FieldPath) -> bool:
        stages, selectors = list(self._file.stages), sorted(self._selectors)
        stage, _, field = axis.partition(".")
        if axis in self._selectors:
            return True
        if not field or "" in field.split("."):
            example = f"{stages[0]}.field"
            self._problems.add(Problem(path, f"found {axis!r}, needs a path such as {example}"))
        elif stage not in stages:
            near = did_you_mean(stage, stages) or did_you_mean(axis, selectors)
            allowed = name_list([*stages, *selectors])
            message = f"matches nothing: no stage {stage!r}{near} (allowed: {allowed})"
            self._problems.add(Problem(path, message))
        elif (first := field.split(".")[0]) in NOT_AN_AXIS:
            self._problems.add(Problem(path, f"{first} can't be an axis{NOT_AN_AXIS[first]}"))
        else:
            return True
        return False

    def _check_selected(self, axis: str, choice: Choice) -> None:
        known = self._selectors.get(axis, [])
        if axis.partition(".")[0] in self._file.stages or not known:
            return
        if not any(same_value(choice.value, value) for value in known):
            names = list(dict.fromkeys(map(label, known)))
            message = f"found {shown(choice.value)}{did_you_mean(label(choice.value), names)}"
            message += f" (the other file has: {name_list(names)})"
            self._problems.add(Problem(choice.origin, message))

    def _without_excluded(self, combinations: list[dict[str, Choice]]) -> list[dict[str, Choice]]:
        common = combinations[0].keys() if combinations else set()
        having: dict[tuple[str, str], set[int]] = {}
        for axis in common & {axis for pattern in self._file.exclude for axis in pattern}:
            for n, choices in enumerate(combinations):
                having.setdefault((axis, choices[axis].comparable), set()).add(n)
        known = functools.cache(lambda axis: {comparable(v): label(v) for v in self._axes[axis]})
        dropped: set[int] = set()
        for i, pattern in enumerate(self._file.exclude):
            wrong = (
                []
                if pattern
                else [Problem(("exclude", i), "names no axis, so it would drop every grid point")]
            )
            for axis, value in pattern.items():
                if axis not in self._axes:
                    fault, word, names = "no such axis", axis, tuple(self._axes)
                elif comparable(value) not in known(axis):
                    fault, word = f"found {shown(value)}", label(value)
                    names = tuple(known(axis).values())
                else:
                    continue
                near, allowed = nearest_name(word, names), first_names(names)
                at = ("exclude", i, axis)
                wrong.append(Problem(at, fault, nearest=near, allowed=allowed))
            self._problems.add(*wrong)
            if not wrong and pattern.keys() <= common:  # a wrong axis is in no combination
                found = [having.get((a, comparable(v)), set()) for a, v in pattern.items()]
                matching = set.intersection(*sorted(found, key=len))
                if not matching:
                    self._problems.add(Problem(("exclude", i), "matches no grid point"))
                dropped |= matching
        return [choices for n, choices in enumerate(combinations) if n not in dropped]


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
