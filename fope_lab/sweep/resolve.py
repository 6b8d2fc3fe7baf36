"""The stages of a sweep: those of every section of the file, at every grid point.

If a parent has several variants, so has its child; equal stages become one. A section is therefore
checked once for each combination of the axis values and the parent that its stage depends on: its
cells. They are counted before the first is built.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fope_lab.config.problems import Problem
from fope_lab.sweep.apply_axes import StageSection, apply_axes
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.grid_point import Choice, GridPoint
from fope_lab.sweep.parents import Parent, ParentFinder
from fope_lab.sweep.problem_collector import ProblemCollector
from fope_lab.sweep.stage_builder import BuiltStage, StageBuilder
from fope_lab.sweep.sweep_file import SweepFile


@dataclass(frozen=True)
class ResolvedStages:
    """All stages of a sweep, parents first, and the stages of each section of its file.

    Stages that are equal occur once in `stages`, and in `by_section` once for each way that leads
    to them.
    """

    stages: tuple[Stage, ...]
    by_section: Mapping[str, tuple[Stage, ...]]


@dataclass(frozen=True)
class _Cell:
    """A section with the choices for its axes, a parent, a seed, and the grid points that share it.

    `origins` tells the choices from those of other cells. `parent` is another cell, by its number,
    or what a `from` means outside this file.
    """

    section: str
    choices: Mapping[str, Choice]
    origins: Hashable
    parent: int | Parent
    seed: int
    points: list[GridPoint] = field(default_factory=list)


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
    cells = _cells(file, points, parents, problems)
    if len(cells) > file.max_stages:
        problems.add(file.too_many(f"{len(cells):,} stages with all axes and seeds", "stages"))
        cells = []
    sections: dict[Hashable, StageSection] = {}
    built: list[BuiltStage] = []
    for cell in cells:
        parent = cell.parent
        if isinstance(parent, int):
            parent = Parent(stage=built[parent].stage)
        if (cell.section, cell.origins) not in sections:
            section = apply_axes(cell.section, file.stages[cell.section], cell.choices)
            sections[cell.section, cell.origins] = section
        section = sections[cell.section, cell.origins]
        built.append(one := builder.build(section, parent, cell.seed))
        if one.problems:
            for point in cell.points:
                problems.add_at_point(point, *one.problems)
            if problems.is_full():
                break
    stages: dict[str, Stage] = {}
    by_section: dict[str, list[Stage]] = {name: [] for name in file.stages}
    for one in built:
        for stage in one.stages:
            stages.setdefault(stage.key, stage)
        if one.stage is not None:
            by_section[one.stage.section].append(one.stage)
    return ResolvedStages(
        tuple(stages.values()), {name: tuple(found) for name, found in by_section.items()}
    )


def _cells(
    file: SweepFile,
    points: Sequence[GridPoint],
    parents: ParentFinder,
    problems: ProblemCollector,
) -> list[_Cell]:
    """Return the cells of all grid points, each once, and parents before their children."""
    sections = {name: s for name, s in file.stages.items() if isinstance(s, dict)}
    cells: dict[Hashable, _Cell] = {}
    numbers: dict[Hashable, int] = {}
    for point in points:
        choices = _choices_by_section(point)
        references = {
            name: _reference(name, section, choices.get(name, {}))
            for name, section in sections.items()
        }
        resolved: dict[str, int] = {}
        for name in _parents_first(references, choices, point, problems):
            reference, own = references[name], choices.get(name, {})
            parent: int | Parent
            came_from: Hashable
            if isinstance(reference, str) and reference in resolved:
                came_from = parent = resolved[reference]
            else:
                parent = parents.find(reference, name, point)
                came_from = parent.memo_key
            origins = tuple(sorted((axis, choice.origin) for axis, choice in own.items()))
            key = (name, origins, isinstance(parent, int), came_from, point.seed)
            if key not in cells:
                cells[key] = _Cell(name, own, origins, parent, point.seed)
                numbers[key] = len(numbers)
            cells[key].points.append(point)
            resolved[name] = numbers[key]
    return list(cells.values())


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
