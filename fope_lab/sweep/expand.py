"""The cells of a grid: which value every axis has, for every combination and seed.

`grid` axes multiply; the lists of `zip` go together as one axis; `include` appends complete cells;
`exclude` drops the cells that match. An axis is the path `stage.field.…` that it sets, and so names
itself in tables, tags and claims.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fope_lab.config.problems import (
    FieldPath,
    Problem,
    did_you_mean,
    name_list,
    shown,
)
from fope_lab.config.yaml_document import Document
from fope_lab.stages.labels import label

if TYPE_CHECKING:
    from fope_lab.sweep.spec import SweepFile

MAX_CELLS = 100_000
FIXED = {"kind": "", "seed": "; use seeds"}
"""Fields that no axis can set, and what to do instead."""


@dataclass(frozen=True)
class Choice:
    """The value that a cell has on one axis, and where in the file it stands."""

    value: Any
    origin: FieldPath


@dataclass(frozen=True)
class Cell:
    """One combination of the axes' values, under one seed."""

    choices: Mapping[str, Choice]
    seed: int


def expand_cells(
    file: SweepFile,
    document: Document,
    selectors: Mapping[str, Sequence[Any]],
    problems: list[Problem],
) -> list[Cell]:
    """Every cell of the sweep. Appends to `problems` what is wrong, and leaves that out.

    `selectors` are the axes of stages in other files that this file names, with their values.
    """
    return _Expansion(file, document, selectors, problems).cells()


def same_value(one: Any, other: Any) -> bool:
    """Whether two values of a sweep file are equal; `true` is not 1, but 1.0 is."""
    return one == other and json.dumps(_as_floats(one)) == json.dumps(_as_floats(other))


class _Expansion:
    def __init__(
        self,
        file: SweepFile,
        document: Document,
        selectors: Mapping[str, Sequence[Any]],
        problems: list[Problem],
    ) -> None:
        self._file, self._document, self._selectors = file, document, selectors
        self._problems = problems

    def cells(self) -> list[Cell]:
        file = self._file
        grid, zipped = self._choices("grid", file.grid), self._choices("zip", file.zip)
        for axis in grid.keys() & zipped.keys():
            self._problem(("zip", axis), "this axis is in grid too")
        lengths = {axis: len(values) for axis, values in file.zip.items()}
        if len(set(lengths.values())) > 1:
            found = name_list(f"{axis} {length}" for axis, length in lengths.items())
            self._problem(("zip",), f"the lists must be equally long; found {found}")
        included = [
            cell for i, values in enumerate(file.include) if (cell := self._included(i, values))
        ]

        rows = [dict(zip(zipped, row, strict=True)) for row in zip(*zipped.values(), strict=False)]
        rows = rows or [{}]
        count = len(rows) * math.prod(map(len, grid.values())) * len(file.seeds)
        if count > MAX_CELLS:
            message = f"makes {count:,} cells with all seeds (allowed: at most {MAX_CELLS:,})"
            self._problem(("grid",), message)
            return []
        gridded = [
            {**row, **dict(zip(grid, values, strict=True))}
            for row in rows
            for values in itertools.product(*grid.values())
        ]
        if included and not (file.grid or file.zip):
            gridded = []  # the cells are those listed, and none beside them
        cells = self._without_excluded(gridded) + included
        if not cells:
            self._problem(("exclude",), "leaves no cell")
        return [Cell(choices, seed) for choices in cells for seed in file.seeds]

    def _problem(self, path: FieldPath, message: str) -> None:
        self._problems.append(self._document.locate(Problem(path, message)))

    def _choices(self, part: str, axes: Mapping[str, Sequence[Any]]) -> dict[str, list[Choice]]:
        """The choices of the axes in `grid` or `zip`, without axes that are none."""
        found = {}
        for axis, values in axes.items():
            if self._is_axis(axis, (part, axis)):
                found[axis] = [Choice(value, (part, axis, i)) for i, value in enumerate(values)]
                for choice in found[axis]:
                    self._check_selected(axis, choice)
        return found

    def _included(self, i: int, values: Mapping[str, Any]) -> dict[str, Choice] | None:
        """A cell of `include`, None if it is not complete."""
        axes = {**self._file.grid, **self._file.zip}
        choices = {axis: Choice(value, ("include", i, axis)) for axis, value in values.items()}
        for axis, choice in list(choices.items()):
            if not self._is_axis(axis, choice.origin):
                del choices[axis]
            self._check_selected(axis, choice)
        if missing := [axis for axis in axes if axis not in values]:
            message = f"a cell must set every axis; missing: {name_list(missing)}"
            self._problem(("include", i), message)
            return None
        return choices

    def _is_axis(self, axis: str, path: FieldPath) -> bool:
        """Whether an axis can be one; if not, `path` is where it stands."""
        stages, selectors = list(self._file.stages), sorted(self._selectors)
        stage, _, field = axis.partition(".")
        if axis in self._selectors:
            return True
        if not field or "" in field.split("."):
            example = f"{stages[0]}.field"
            self._problem(path, f"found {axis!r}, needs a path such as {example}")
        elif stage not in stages:
            near = did_you_mean(stage, stages) or did_you_mean(axis, selectors)
            allowed = name_list([*stages, *selectors])
            message = f"matches nothing: no stage {stage!r}{near} (allowed: {allowed})"
            self._problem(path, message)
        elif (first := field.split(".")[0]) in FIXED:
            self._problem(path, f"{first} can't be an axis{FIXED[first]}")
        else:
            return True
        return False

    def _check_selected(self, axis: str, choice: Choice) -> None:
        """A value that chooses a stage of another file must be one that the other file has."""
        known = self._selectors.get(axis, [])
        if axis.partition(".")[0] in self._file.stages or not known:
            return
        if not any(same_value(choice.value, one) for one in known):
            names = list(dict.fromkeys(label(one) for one in known))
            message = f"found {shown(choice.value)}{did_you_mean(label(choice.value), names)}"
            self._problem(choice.origin, f"{message} (the other file has: {name_list(names)})")

    def _without_excluded(self, cells: list[dict[str, Choice]]) -> list[dict[str, Choice]]:
        dropped: set[int] = set()
        for i, pattern in enumerate(self._file.exclude):
            # An axis that is none in truth is no part of the cells.
            if not self._can_match(i, pattern) or not all(
                pattern.keys() <= c.keys() for c in cells
            ):
                continue
            matching = {
                n
                for n, cell in enumerate(cells)
                if all(same_value(cell[axis].value, value) for axis, value in pattern.items())
            }
            if not matching:
                self._problem(("exclude", i), "matches no cell of the grid")
            dropped |= matching
        return [cell for n, cell in enumerate(cells) if n not in dropped]

    def _can_match(self, i: int, pattern: Mapping[str, Any]) -> bool:
        """Whether an exclusion names axes of the grid with values that they have."""
        axes = {**self._file.grid, **self._file.zip}
        before = len(self._problems)
        if not pattern:
            self._problem(("exclude", i), "names no axis, so it would drop every cell")
        for axis, value in pattern.items():
            at = ("exclude", i, axis)
            if axis not in axes:
                near = did_you_mean(axis, list(axes))
                self._problem(at, f"no such axis{near} (allowed: {name_list(axes)})")
            elif not any(same_value(value, one) for one in axes[axis]):
                names = [label(one) for one in axes[axis]]
                near = did_you_mean(label(value), names)
                self._problem(at, f"found {shown(value)}{near} (allowed: {name_list(names)})")
        return len(self._problems) == before


def _as_floats(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _as_floats(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_as_floats(item) for item in value]
    return value if isinstance(value, bool) or not isinstance(value, int) else float(value)
