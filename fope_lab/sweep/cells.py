"""The cells of a sweep: a section with the values of its axes and a parent, under one seed.

If a parent has several variants, so has its child. A child of a section with `select` starts from
the chosen one of several cells: those of all values of the selected axis, and of all seeds.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fope_lab.config.problems import Problem
from fope_lab.sweep.grid_point import Choice, GridPoint, comparable
from fope_lab.sweep.parents import Parent, ParentFinder
from fope_lab.sweep.problem_collector import ProblemCollector
from fope_lab.sweep.sweep_file import SweepFile


@dataclass(frozen=True, eq=False)
class Selection:
    """The cells of a section that one is chosen from, by their numbers in the file's order."""

    candidates: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Cell:
    """A section with the choices for its axes, a parent, a seed, and the grid points that share it.

    `origins` tells the choices from those of other cells. `parent` is another cell, by its number,
    what a selection chooses under the cell's seed, or what a `from` means outside this file.
    """

    section: str
    choices: Mapping[str, Choice]
    origins: Hashable
    parent: int | Selection | Parent
    seed: int
    points: list[GridPoint] = field(default_factory=list)


class Cells:
    """The cells of all grid points, each once, in `all`; and the `selections` among them.

    `selected` has the selected axis of each section with `select`.
    """

    def __init__(self, selected: Mapping[str, str]) -> None:
        self.all: list[Cell] = []
        self._selected = selected
        self._numbers: dict[Hashable, int] = {}
        self._selections: dict[Hashable, Selection] = {}

    @property
    def selections(self) -> list[Selection]:
        """Every selection, once for all seeds."""
        return list(self._selections.values())

    def add(
        self, name: str, own: Mapping[str, Choice], parent: int | Selection | Parent, at: GridPoint
    ) -> int | Selection:
        """Add a section at a grid point; returns what its children start from."""
        came_from = parent.memo_key if isinstance(parent, Parent) else parent
        origins = tuple(sorted((axis, choice.origin) for axis, choice in own.items()))
        key = (name, origins, type(parent), came_from, at.seed)
        is_new = key not in self._numbers
        if is_new:
            self._numbers[key] = len(self.all)
            self.all.append(Cell(name, own, origins, parent, at.seed))
        number = self._numbers[key]
        self.all[number].points.append(at)
        if name not in self._selected:
            return number
        group = self._group(number, self._selected[name])
        selection = self._selections.setdefault(group, Selection())
        if is_new:
            selection.candidates.append(number)
        return selection

    def _group(self, number: int, without: str | None = None) -> Hashable:
        """What a cell has in common with those that differ in their seed and in one axis."""
        cell = self.all[number]
        values = (
            (axis, comparable(choice.value))
            for axis, choice in cell.choices.items()
            if axis != without
        )
        parent = cell.parent
        before: Hashable
        if isinstance(parent, int):
            before = self._group(parent)
        elif isinstance(parent, Parent) and parent.stage is not None:
            before = (parent.stage.section, json.dumps(parent.stage.axes, sort_keys=True))
        else:
            before = parent.memo_key if isinstance(parent, Parent) else parent
        return cell.section, tuple(sorted(values)), before


def find_cells(
    file: SweepFile,
    points: Sequence[GridPoint],
    parents: ParentFinder,
    problems: ProblemCollector,
    selected: Mapping[str, str],
) -> Cells:
    """Return the cells of all grid points; of two cells of one point, the parent comes first."""
    sections = {name: s for name, s in file.stages.items() if isinstance(s, dict)}
    cells = Cells(selected)
    for point in points:
        choices = _choices_by_section(point)
        references = {
            name: _reference(name, section, choices.get(name, {}))
            for name, section in sections.items()
        }
        resolved: dict[str, int | Selection] = {}
        for name in _parents_first(references, choices, point, problems):
            reference, own = references[name], choices.get(name, {})
            if isinstance(reference, str) and reference in resolved:
                parent: int | Selection | Parent = resolved[reference]
            else:
                parent = parents.find(reference, name, point)
            resolved[name] = cells.add(name, own, parent, point)
    return cells


def _choices_by_section(point: GridPoint) -> dict[str, dict[str, Choice]]:
    """Return the choices at a grid point by the section whose fields they set, if any."""
    choices: dict[str, dict[str, Choice]] = {}
    for axis, choice in point.choices.items():
        choices.setdefault(axis.partition(".")[0], {})[axis] = choice
    return choices


def _reference(name: str, section: Mapping[str, Any], choices: Mapping[str, Choice]) -> Any:
    """Return the value of a section's `from` at a grid point."""
    choice = choices.get(f"{name}.from")
    return choice.value if choice else section.get("from")


def _parents_first(
    references: Mapping[str, Any],
    choices: Mapping[str, Mapping[str, Choice]],
    point: GridPoint,
    problems: ProblemCollector,
) -> list[str]:
    """Return the sections in an order in which parents precede children; cycles are reported."""
    order: dict[str, None] = {}
    for start in references:
        chain: dict[str, None] = {}
        name = start
        while name in references and name not in order and name not in chain:
            chain[name] = None
            name = references[name] if isinstance(references[name], str) else ""
        if name in chain:
            cycle = list(chain)[list(chain).index(name) :]
            choice = choices.get(name, {}).get(f"{name}.from")
            at = choice.origin if choice else ("stages", name, "from")
            problem = Problem(at, f"a cycle: {' → '.join([*cycle, name])}")
            problems.add_at_point(point, problem)
        order.update(dict.fromkeys(reversed(chain)))
    return list(order)
