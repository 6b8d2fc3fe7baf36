"""The states of a plan's stages: what the store tells, and what follows from the graph."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fope_lab.store import StageState, Status, Store
from fope_lab.store.state import NOT_STARTED
from fope_lab.sweep.graph import Stage


def read_states(stages: Iterable[Stage], store: Store) -> dict[str, StageState]:
    """The state of each stage by its key, from the store alone."""
    begun = functools.cache(store.keys)  # of a large grid, most stages have no folder
    return {
        stage.key: store.folder(stage.kind, stage.key).state()
        if stage.key in begun(stage.kind)
        else NOT_STARTED
        for stage in stages
    }


def unfinished_parents(stage: Stage, states: Mapping[str, StageState]) -> list[str]:
    """The keys of the stage's parents that are not done, each once."""
    keys = dict.fromkeys(stage.parents.values())
    return [key for key in keys if key in states and not states[key].is_done]


def is_ready(stage: Stage, states: Mapping[str, StageState]) -> bool:
    """Whether all parents of the stage are done."""
    return not unfinished_parents(stage, states)


def block_descendants(
    stages: Sequence[Stage], states: Mapping[str, StageState]
) -> dict[str, StageState]:
    """`states`, in which the unfinished descendants of failed stages are blocked.

    `stages` come parents first. The reason names the stage that failed.
    """
    blocked = dict(states)
    names = {stage.key: stage.label for stage in stages}
    for stage in stages:
        state = blocked[stage.key]
        if state.status in (Status.DONE, Status.FAILED):
            continue
        for key in unfinished_parents(stage, blocked):
            if blocked[key].status is Status.FAILED:
                reason = f"{names[key]} failed"
            elif blocked[key].status is Status.BLOCKED:
                reason = blocked[key].reason
            else:
                continue
            blocked[stage.key] = replace(state, status=Status.BLOCKED, reason=reason)
            break
    return blocked
