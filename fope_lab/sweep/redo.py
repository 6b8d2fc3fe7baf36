"""Which finished stages a run does again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fope_lab.config.problems import Problem, SweepError, unknown_name
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.plan import Plan

KEY_DIGITS = 6
"""The least number of digits of a key that name a stage."""


def stages_to_redo(
    plans: Sequence[Plan], names: Iterable[str] = (), *, stale: bool = False
) -> list[Stage]:
    """The named stages, with `stale` those whose code has changed since, and all descendants.

    A name is that of a section of a sweep file, a stage's label, its key, or at least KEY_DIGITS
    first digits of its key. Parents come before their children. Raises SweepError for a name that
    no stage has.
    """
    stages = list(
        {stage.key: stage for planned in plans for stage in planned.sweep.stages}.values()
    )
    redone = {key for planned in plans for key in planned.changes} if stale else set[str]()
    problems = []
    for name in names:
        found = {stage.key for stage in stages if _is_named(stage, name)}
        redone |= found
        if not found:
            problems.append(_unknown(name, stages))
    if problems:
        raise SweepError(problems)
    for stage in stages:
        if redone.intersection(stage.parents.values()):
            redone.add(stage.key)
    return [stage for stage in stages if stage.key in redone]


def _is_named(stage: Stage, name: str) -> bool:
    is_key = len(name) >= KEY_DIGITS and stage.key.startswith(name)
    return is_key or name in (stage.section, stage.label)


def _unknown(name: str, stages: Iterable[Stage]) -> Problem:
    sections = list(dict.fromkeys(stage.section for stage in stages))
    return unknown_name(("--redo",), "stage or key", name, sections)
