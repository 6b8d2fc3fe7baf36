"""The problems of one sweep file, collected over all steps of reading it."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence

from fope_lab.config.problems import FieldPath, Problem, SweepError
from fope_lab.config.yaml_document import Document
from fope_lab.stages.labels import label
from fope_lab.sweep.grid_point import GridPoint

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
