"""The stages of a sweep: those of every section of the file, at every grid point.

If a parent has several variants, so has its child; equal stages become one. A section is therefore
checked once for each combination of the axis values and the parent that its stage depends on.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fope_lab.config.problems import Problem
from fope_lab.sweep.apply_axes import apply_axes
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


def resolve_stages(
    file: SweepFile,
    points: Sequence[GridPoint],
    parents: ParentFinder,
    builder: StageBuilder,
    problems: ProblemCollector,
) -> ResolvedStages:
    """Return the stages at all grid points; what is wrong goes to `problems`."""
    sections = {name: s for name, s in file.stages.items() if isinstance(s, dict)}
    built: dict[Hashable, BuiltStage] = {}
    for point in points:
        choices = _choices_by_section(sections, point)
        references = {
            name: _reference(name, section, choices[name]) for name, section in sections.items()
        }
        resolved: dict[str, Parent] = {}
        for name in _parents_first(references, choices, point, problems):
            parent = parents.find(references[name], name, point, resolved)
            memo_key = (
                name,
                tuple(sorted((axis, choice.origin) for axis, choice in choices[name].items())),
                parent.memo_key,
                point.seed,
            )
            if memo_key not in built:
                section = apply_axes(name, sections[name], choices[name])
                built[memo_key] = builder.build(section, parent, point.seed)
            resolved[name] = Parent(memo_key, built[memo_key].stage)
            problems.add_at_point(point, *built[memo_key].problems)
    stages: dict[str, Stage] = {}
    by_section: dict[str, list[Stage]] = {name: [] for name in file.stages}
    for one in built.values():
        for stage in one.stages:
            stages.setdefault(stage.key, stage)
        if one.stage is not None:
            by_section[one.stage.section].append(one.stage)
    return ResolvedStages(
        tuple(stages.values()), {name: tuple(found) for name, found in by_section.items()}
    )


def _choices_by_section(
    sections: Mapping[str, Any], point: GridPoint
) -> dict[str, dict[str, Choice]]:
    """Return the choices at a grid point by the section whose fields they set."""
    choices: dict[str, dict[str, Choice]] = {name: {} for name in sections}
    for axis, choice in point.choices.items():
        name = axis.partition(".")[0]
        if name in choices:
            choices[name][axis] = choice
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
            choice = choices[name].get(f"{name}.from")
            at = choice.origin if choice else ("stages", name, "from")
            problem = Problem(at, f"a cycle: {' → '.join([*cycle, name])}")
            problems.add_at_point(point, problem)
        order.update(dict.fromkeys(reversed(chain)))
    return list(order)
