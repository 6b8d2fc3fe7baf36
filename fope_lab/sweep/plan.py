"""The plan of a sweep: each stage with its state in the store, and why."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fope_lab.store import StageFolder, Store
from fope_lab.sweep.graph import Stage

if TYPE_CHECKING:
    from fope_lab.sweep.spec import Sweep

STATES = ("cached", "resume", "run", "blocked")


@dataclass(frozen=True)
class State:
    """What a run would do with a stage: one of STATES, and the reason."""

    state: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """The stages of a sweep, parents before children, and the state of each by key."""

    sweep: Sweep
    stages: tuple[Stage, ...]
    states: dict[str, State]


def plan(sweep: Sweep, store: Store | str | os.PathLike[str] | None = None) -> Plan:
    """What a run of `sweep` would do, given what the store holds: all, if there is no store yet.

    Planning writes nothing. Raises store.StoreError if `store` is not a folder.
    """
    if store is not None and not isinstance(store, Store):
        store = Store.open(store)
    states: dict[str, State] = {}
    by_key = {stage.key: stage for stage in sweep.stages}
    for stage in sweep.stages:
        parents = [key for key in stage.parents.values() if states[key].state != "cached"]
        waiting = list(dict.fromkeys(by_key[key].section for key in parents))
        folder = store.folder(stage.kind, stage.key) if store else None
        lacks = stage.spec.missing_resource(store.root if store else None)
        states[stage.key] = _state(stage, folder, waiting, lacks)
    return Plan(sweep, sweep.stages, states)


def _state(
    stage: Stage, folder: StageFolder | None, waiting: list[str], lacks: str | None
) -> State:
    """`waiting` names the stages of the sweep file that parents not done yet belong to, `lacks`
    says what must be there before the stage can run."""
    if folder is not None and folder.is_done():
        return State("cached", f"done in {folder.seconds() or 0:.0f} s")
    if lacks is not None:
        return State("blocked", lacks)
    checkpoint = folder.checkpoint() if folder else None
    reasons = []
    if checkpoint is not None:
        reasons.append(f"from its checkpoint at step {checkpoint.step}")
    if folder is not None and (before := _history(folder)):
        reasons.append(before)
    reasons = reasons or ["not in the store"]
    if waiting:
        reasons.append(f"after {', '.join(waiting)}")
    return State("resume" if checkpoint else "run", "; ".join(reasons))


def _history(folder: StageFolder) -> str | None:
    """What became of a stage that was begun and is not done."""
    if (folder.path / "DONE").exists():
        return "finished before, but what it left is damaged or gone"
    if failure := folder.failure():
        return f"failed before: {(failure['error'].strip() or failure['type']).splitlines()[0]}"
    newest = folder.attempts.newest()
    if newest is None:
        return None
    if newest.end is None:
        return f"begun by {newest.owner}, which has not ended it"
    return "interrupted before"
