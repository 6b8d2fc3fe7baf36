"""Which stages of its plans a run does: all, the named or failed ones, or some of them again.

    pretrain                              every stage of this section of the sweep file
    pretrain[embedding=rope,seed=0]       the stage of this label
    pretrain[embedding=rope]              every stage with this in its label, if none has this label
    1a2b3c4d                              the stage whose key begins like this

A command that takes one stage takes a section, too, if the section has one stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from fope_lab.config.problems import (
    FieldPath,
    Problem,
    SweepError,
    first_names,
    name_list,
    nearest_name,
    shown,
)
from fope_lab.stages.labels import LabelParts
from fope_lab.store.state import Status
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.plan import Plan, StageNode, stages_of

KEY_DIGITS = 6
"""The least number of digits of a key that name a stage."""
SHOWN_DIGITS = 8
"""The number of digits of a key that tables and messages show."""


AnyStage = TypeVar("AnyStage", bound=StageNode)


def find_stages(
    stages: Iterable[AnyStage], names: Iterable[str], at: FieldPath = ()
) -> list[AnyStage]:
    """The stages that any of the names means, each key once, in the order of `stages`. Errors name
    the argument `at`. Raises SweepError for a name that means no stage, and for digits with which
    several keys begin."""
    known = list(stages)
    problems: list[Problem] = []
    named: set[str] = set()
    for name in names:
        by_name = {s.key: s for s in known if name and name in (s.section, s.label)}
        if not by_name and (wanted := LabelParts.of(name)):
            parts = ((stage, LabelParts.of(stage.label)) for stage in known)
            by_name = {s.key: s for s, own in parts if own is not None and own.includes(wanted)}
        by_key = {s.key: s for s in known if len(name) >= KEY_DIGITS and s.key.startswith(name)}
        if not by_name and len(by_key) != 1:
            several = list(by_key.values())
            problems.append(_several(name, several, at) if several else _unknown(name, known, at))
        named |= (by_name or by_key).keys()
    if problems:
        raise SweepError(problems)
    first = {stage.key: stage for stage in reversed(known)}
    return [first[key] for key in dict.fromkeys(s.key for s in known) if key in named]


def find_stage(stages: Iterable[AnyStage], name: str, at: FieldPath = ()) -> AnyStage:
    """The one stage that the name means. Raises SweepError if it means none or several."""
    found = find_stages(stages, [name], at)
    if len(found) > 1:
        raise SweepError(_several(name, found, at))
    return found[0]


def _unknown(name: str, stages: Sequence[StageNode], at: FieldPath) -> Problem:
    sections = list(dict.fromkeys(stage.section for stage in stages if stage.section))
    labels = dict.fromkeys(stage.label for stage in stages if stage.label)
    nearest = nearest_name(name, sections) or nearest_name(name, labels)
    fault = f"unknown stage or key {shown(name)}"
    return Problem(at, fault, nearest=nearest, allowed=first_names(sections))


def _several(name: str, stages: Sequence[StageNode], at: FieldPath) -> Problem:
    names = name_list(f"{stage.label} ({stage.key[:SHOWN_DIGITS]})" for stage in stages)
    return Problem(at, f"{shown(name)} means {len(stages)} stages: {names}", "one label or key")


StageFilter = Callable[[Sequence[Plan]], Sequence[Plan]]
"""Returns plans with a part of the stages of the given ones."""


def every_stage(plans: Sequence[Plan]) -> Sequence[Plan]:
    """Keep every stage of every plan, as a run does that is asked for no part of them."""
    return plans


def only(names: Iterable[str]) -> StageFilter:
    """Keep the named stages and what they need. Raises SweepError for a name without a stage."""

    def keep(plans: Sequence[Plan]) -> list[Plan]:
        named = find_stages(stages_of(plans), names, ("--only",))
        return _restricted(plans, {stage.key for stage in named})

    return keep


def failed(plans: Sequence[Plan]) -> list[Plan]:
    """Keep the stages that failed last, those that wait for them, and what all of these need."""
    states = {key: state for planned in plans for key, state in planned.states.items()}
    chosen = {key for key, state in states.items() if state.status is Status.FAILED}
    for stage in stages_of(plans):
        if not states[stage.key].is_done and chosen.intersection(stage.parents.values()):
            chosen.add(stage.key)
    return _restricted(plans, chosen)


def _restricted(plans: Sequence[Plan], keys: Iterable[str]) -> list[Plan]:
    """Keep these stages and what they need: of a finished one, its finished ancestors."""
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


def stages_to_redo(
    plans: Sequence[Plan], names: Iterable[str] = (), *, stale: bool = False
) -> list[Stage]:
    """The named stages, with `stale` those whose code has changed, and all descendants. Parents
    come first. Raises SweepError for a name that means no stage."""
    stages = stages_of(plans)
    redone = {key for planned in plans for key in planned.changes} if stale else set[str]()
    redone |= {stage.key for stage in find_stages(stages, names, ("--redo",))}
    for stage in stages:
        if redone.intersection(stage.parents.values()):
            redone.add(stage.key)
    return [stage for stage in stages if stage.key in redone]
