"""Which finished stages a run does again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fope_lab.sweep.graph import Stage
from fope_lab.sweep.plan import Plan
from fope_lab.sweep.selection import stages_of
from fope_lab.sweep.stage_names import find_stages


def stages_to_redo(
    plans: Sequence[Plan], names: Iterable[str] = (), *, stale: bool = False
) -> list[Stage]:
    """The named stages, with `stale` those whose code has changed since, and all descendants.

    Parents come before their children. Raises SweepError for a name that means no stage.
    """
    stages = stages_of(plans)
    redone = {key for planned in plans for key in planned.changes} if stale else set[str]()
    redone |= {stage.key for stage in find_stages(stages, names, ("--redo",))}
    for stage in stages:
        if redone.intersection(stage.parents.values()):
            redone.add(stage.key)
    return [stage for stage in stages if stage.key in redone]
