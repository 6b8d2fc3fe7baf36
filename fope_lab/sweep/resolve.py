"""The stages of a sweep: those of every section of the file, at every grid point.

Equal stages become one. A section is checked once for each combination of the axis values and the
parent that its stage depends on: its cells (cells.py). They are counted before the first is built.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from fope_lab.config.problems import Problem
from fope_lab.sweep.cells import Cell, Selection, find_cells
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.grid_point import GridPoint, StageFields, apply_axes
from fope_lab.sweep.model_stages import selected_axis
from fope_lab.sweep.parents import Parent, ParentFinder
from fope_lab.sweep.problem_collector import ProblemCollector
from fope_lab.sweep.stage_builder import BuiltStage, StageBuilder
from fope_lab.sweep.sweep_file import SweepFile


@dataclass(frozen=True)
class ResolvedStages:
    """All stages of a sweep, parents first, and the stages of each section of its file.

    Stages that are equal occur once in `stages`, and in `by_section` once for each way that leads
    to them. `selected` has, for each section with `select`, the stages that choose among its own.
    """

    stages: tuple[Stage, ...]
    by_section: Mapping[str, tuple[Stage, ...]]
    selected: Mapping[str, tuple[Stage, ...]]


def resolve_stages(
    file: SweepFile,
    points: Sequence[GridPoint],
    parents: ParentFinder,
    builder: StageBuilder,
    problems: ProblemCollector,
) -> ResolvedStages:
    """Return the stages at all grid points; what is wrong goes to `problems`.

    If there are more than the file's `max_stages`, none is built.
    """
    axes = {name: selected_axis(name, content) for name, content in file.stages.items()}
    selected = {name: axis for name, axis in axes.items() if axis is not None}
    cells = find_cells(file, points, parents, problems, selected)
    count = len(cells.all) + len(cells.selections) * len(file.every_seed)
    resolution = _Resolution(file, builder, cells.all, selected, problems)
    if count > file.max_stages:
        problems.add(file.too_many(f"{count:,} stages with all axes and seeds", "stages"))
    else:
        resolution.build_all()
        for selection in cells.selections:
            resolution.choose(selection)
    return resolution.result()


class _Resolution:
    """Builds the stages of cells, each once, parents before their children."""

    def __init__(
        self,
        file: SweepFile,
        builder: StageBuilder,
        cells: Sequence[Cell],
        selected: Mapping[str, str],
        problems: ProblemCollector,
    ) -> None:
        self._file, self._builder, self._problems = file, builder, problems
        self._cells, self._selected = cells, selected
        self._sections: dict[Hashable, StageFields] = {}
        self._built: dict[int, BuiltStage] = {}
        self._chosen: dict[Selection, dict[int, Stage]] = {}
        self._stages: dict[str, Stage] = {}

    def build_all(self) -> None:
        """Build every cell, until nobody would read more problems."""
        for number in range(len(self._cells)):
            self._build(number)
            if self._problems.is_full():
                break

    def choose(self, selection: Selection) -> dict[int, Stage]:
        """The stages that choose among the candidates, by seed; none if a candidate is wrong."""
        if selection in self._chosen:
            return self._chosen[selection]
        built = [self._build(number).stage for number in selection.candidates]
        candidates = [stage for stage in built if stage is not None]
        self._chosen[selection] = {}
        first = self._cells[selection.candidates[0]]
        is_axis = self._selected[first.section] in first.choices  # or else it is reported
        if is_axis and len(candidates) == len(built):
            try:
                made = self._builder.select(self._section(first), candidates)
            except ValueError as error:
                at = ("stages", first.section, "select", "over")
                for number in selection.candidates:
                    for point in self._cells[number].points:
                        self._problems.add_at_point(point, Problem(at, str(error)))
            else:
                self._chosen[selection] = made
                self._stages |= {stage.key: stage for stage in made.values()}
        return self._chosen[selection]

    def result(self) -> ResolvedStages:
        """All stages that were built."""
        by_section: dict[str, list[Stage]] = {name: [] for name in self._file.stages}
        for _, one in sorted(self._built.items()):
            if one.stage is not None:
                by_section[one.stage.section].append(one.stage)
        selected: dict[str, list[Stage]] = {}
        for selection, made in self._chosen.items():
            section = self._cells[selection.candidates[0]].section
            selected.setdefault(section, []).extend(made.values())
        return ResolvedStages(
            tuple(self._stages.values()),
            {name: tuple(found) for name, found in by_section.items()},
            {name: tuple(found) for name, found in selected.items()},
        )

    def _build(self, number: int) -> BuiltStage:
        if number in self._built:
            return self._built[number]
        cell = self._cells[number]
        parent = self._parent(cell)
        self._built[number] = one = self._builder.build(self._section(cell), parent, cell.seed)
        for point in cell.points if one.problems else ():
            self._problems.add_at_point(point, *one.problems)
        for stage in one.stages:
            self._stages.setdefault(stage.key, stage)
        return one

    def _parent(self, cell: Cell) -> Parent:
        parent = cell.parent
        if isinstance(parent, int):
            return Parent(stage=self._build(parent).stage)
        if isinstance(parent, Selection):
            return Parent(stage=self.choose(parent).get(cell.seed))
        return parent

    def _section(self, cell: Cell) -> StageFields:
        """The section with the values of the cell's axes, the same for all that share them."""
        place = (cell.section, cell.origins)
        if place not in self._sections:
            content = self._file.stages[cell.section]
            self._sections[place] = apply_axes(cell.section, content, cell.choices)
        return self._sections[place]
