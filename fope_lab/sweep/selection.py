"""Which stages of the plans a run does: every one, or only some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from fope_lab.store import Status
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.plan import Plan
from fope_lab.sweep.stage_names import find_stages

Select = Callable[[Sequence[Plan]], Sequence[Plan]]
"""Returns plans with a part of the stages of the given ones."""


def stages_of(plans: Iterable[Plan]) -> list[Stage]:
    """The stages of all plans, each once; parents come before their children."""
    return list({s.key: s for planned in plans for s in planned.sweep.stages}.values())


def every_stage(plans: Sequence[Plan]) -> Sequence[Plan]:
    """Select every stage of every plan, as a run does that is asked for no part of them."""
    return plans


def only(names: Iterable[str]) -> Select:
    """Select the named stages and what they need, and nothing else.

    The selection raises SweepError for a name that means no stage.
    """

    def select(plans: Sequence[Plan]) -> list[Plan]:
        named = find_stages(stages_of(plans), names, ("--only",))
        return _restricted(plans, {stage.key for stage in named})

    return select


def failed(plans: Sequence[Plan]) -> list[Plan]:
    """Select the stages whose last attempt failed, those that wait for them, and what all of these
    need. No stage is left if none has failed."""
    states = {key: state for planned in plans for key, state in planned.states.items()}
    chosen = {key for key, state in states.items() if state.status is Status.FAILED}
    for stage in stages_of(plans):
        if not states[stage.key].is_done and chosen.intersection(stage.parents.values()):
            chosen.add(stage.key)
    return _restricted(plans, chosen)


def _restricted(plans: Sequence[Plan], keys: Iterable[str]) -> list[Plan]:
    """The plans with the stages of these keys, and with those that they need.

    A finished stage needs none that is unfinished, but a run looks at its finished ancestors.
    """
    done = {key for planned in plans for key, state in planned.states.items() if state.is_done}
    needed = set(keys)
    for stage in reversed(stages_of(plans)):  # children before their parents
        if stage.key in needed:
            parents = stage.parents.values()
            needed.update(key for key in parents if stage.key not in done or key in done)
    return [
        replace(
            planned,
            sweep=replace(
                planned.sweep, stages=tuple(s for s in planned.sweep.stages if s.key in needed)
            ),
            states={key: state for key, state in planned.states.items() if key in needed},
        )
        for planned in plans
    ]
