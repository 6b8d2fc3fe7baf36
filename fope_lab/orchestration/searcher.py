"""The DAG-aware searcher: it gives a stage to Ray Tune when the stage's parents are done.

Tune calls `suggest` whenever it could start a trial. Of the stages that are ready, the one with the
longest remaining path by the plan's forecasts goes first. The store says what is done; the searcher
keeps the state of each stage in this run.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ray.tune.search import Searcher

from fope_lab.orchestration.trial import KEY, OWNER, PROCESS_RETRIES, REASON, STATUS, SUPERSEDE
from fope_lab.planning.schedule import Capacity, remaining_path
from fope_lab.store.attempts import Ending, LeaseHeldError
from fope_lab.store.folder import StageFolder
from fope_lab.store.lease import LeaseObserver, LeaseState
from fope_lab.store.root import Store
from fope_lab.store.state import CACHED, ENDED, StageState, Status
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.plan import (
    block_descendants,
    other_parents,
    output_digest,
    read_other_output,
    unfinished_parents,
)

WAITING = StageState(Status.WAITING)
STARTED = StageState(Status.RUNNING)
"""Tune got the stage; it may still wait for room."""
ELSEWHERE = StageState(Status.RUNNING, elsewhere=True)


class StageSearcher(Searcher):
    """Releases the stages of a plan's graph to Tune, longest remaining path first."""

    def __init__(
        self,
        stages: Sequence[Stage],
        store: Store,
        owner: str,
        capacity: Capacity,
        seconds: Mapping[str, float],
        is_ending: Callable[[], bool] = lambda: False,
        needed: Callable[[Mapping[str, StageState]], dict[str, StageState]] = dict,
    ) -> None:
        """`stages` come parents first, and `seconds` has the plan's forecast of each by key.

        `capacity` bounds how many stages Tune has at once: it starts them first come, first served,
        so that a stage given early would keep a more urgent one waiting. `needed` updates the
        states of stages that results have shown to be needed, or not.
        """
        super().__init__()
        self._stages = {stage.key: stage for stage in stages}
        self._store, self._owner, self._capacity = store, owner, capacity
        self._observer = LeaseObserver()
        self._trials: dict[str, str] = {}
        self._reruns: dict[str, str] = {}
        self._damaged: set[str] = set()
        self._deaths: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._is_ending, self._needed = is_ending, needed
        self._urgency = remaining_path(stages, seconds)
        self._states = {
            key: CACHED if self._folder(key).is_done() else WAITING for key in self._stages
        }
        for stage in stages:
            self._rerun_if_parents_changed(stage)
        self._settle()

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Answer Tune with the configuration of the next trial, None, or FINISHED."""
        with self._lock:
            # While nothing runs, Tune asks again and again, and does nothing else for ten minutes.
            if self._is_ending() or all(s.status in ENDED for s in self._states.values()):
                return Searcher.FINISHED
            for key in self._capacity.admissible(self._ready()):
                folder = self._folder(key)
                lease, token = self._observer.state(folder.attempts, self._owner)
                if folder.is_done():  # read after the lease: another driver may just have ended
                    self._states[key] = CACHED
                    self._rerun_children(self._stages[key])
                    self._settle()
                elif lease is LeaseState.HELD:
                    self._states[key] = ELSEWHERE
                else:
                    self._states[key] = STARTED
                    self._trials[trial_id] = key
                    self._capacity.acquire(key)
                    supersede = token if lease is LeaseState.STALE else None
                    return {KEY: key, OWNER: self._owner, SUPERSEDE: supersede}
            return None

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Note that Tune ended a trial; the store says how the stage ended, else the trial."""
        with self._lock:
            key, result = self._trials.pop(trial_id), result or {}
            self._capacity.release(key)
            folder = self._folder(key)
            state, status, reason = folder.state(), result.get(STATUS), result.get(REASON)
            lease, _ = self._observer.state(folder.attempts, self._owner)
            if state.is_done:
                self._states[key] = replace(state, reason=self._reruns.get(key, ""))
                self._rerun_if_parents_changed(self._stages[key])
                self._rerun_children(self._stages[key])
            elif status == Status.WAITING:  # it found a parent damaged, and moved that away
                self._rerun_parents(key, reason or "")
            elif status == Status.INTERRUPTED:  # it was asked to stop
                begun = state.attempt is not None and state.attempt.owner == self._owner
                self._states[key] = replace(state, status=Status.INTERRUPTED) if begun else WAITING
            elif status == Status.RUNNING or (lease is LeaseState.HELD and not reason):
                # Another driver has the stage; it may have taken it from a process that died.
                self._states[key] = WAITING
            else:
                self._states[key] = self._failed(folder, state, reason)
            self._settle()

    def note_death(self, trial_id: str) -> None:
        """Note that the process of a trial died, and that Tune starts another one."""
        with self._lock:
            if (key := self._trials.get(trial_id)) is not None:
                self._deaths[key] += 1
                died = "its process died"
                tries = f"try {self._deaths[key] + 1} of {PROCESS_RETRIES + 1}"
                self._states[key] = replace(STARTED, reason=f"{died}; {tries}")
                self._reruns[key] = f"{self._stages[key].label}: {died}, and another one went on"

    def states(self) -> dict[str, StageState]:
        """Return a copy of every stage's state in this run, by key (for controller.py's end)."""
        with self._lock:
            return dict(self._states)

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the store holds everything, and a later run plans again from it."""

    restore = save

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its arguments for `Tuner.restore`, which is not used."""
        return {}

    def _rerun_parents(self, key: str, reason: str) -> None:
        self._states[key] = WAITING
        for parent in self._stages[key].parents.values():
            # Another child may have found the same damage first: then the parent already runs.
            if self._states[parent].is_done and not self._folder(parent).is_done():
                if parent in self._damaged:  # its disk loses writes
                    self._states[parent] = StageState(Status.FAILED, f"damaged twice: {reason}")
                else:
                    self._states[parent] = WAITING
                    self._reruns[parent] = reason
                    self._damaged.add(parent)

    def _settle(self) -> None:
        """Add the stages that results show to be needed; block those that lost a parent."""
        needed = self._needed(self._states)
        blocked = block_descendants(list(self._stages.values()), needed)
        self._states = {
            key: state if state.is_unneeded else blocked[key] for key, state in needed.items()
        }

    def _rerun_children(self, parent: Stage) -> None:
        """Re-run the finished children of a stage that has just finished with another output than
        they read: its own was damaged or removed."""
        digest = output_digest(self._folder(parent.key))
        for child in self._stages.values():
            roles = [role for role, key in child.parents.items() if key == parent.key]
            if not roles or not self._states[child.key].is_done:
                continue
            read = self._folder(child.key).parents_read()
            if any(read.get(role) != digest for role in roles):
                self._rerun(child, f"{child.label}: its parent {parent.label} was re-run")

    def _rerun_if_parents_changed(self, stage: Stage) -> None:
        """Re-run a finished stage if a parent has other output by now than it read."""
        others = other_parents(stage, self._stages, self._store)
        if others and self._states[stage.key].is_done:
            self._rerun(stage, f"{stage.label}: {read_other_output(others)}")

    def _rerun(self, stage: Stage, reason: str) -> None:
        with contextlib.suppress(LeaseHeldError):  # another driver does the same
            self._folder(stage.key).set_aside(self._owner, reason)
        self._states[stage.key], self._reruns[stage.key] = WAITING, reason

    def _failed(self, folder: StageFolder, state: StageState, reason: str | None) -> StageState:
        """Why a trial ended without finishing its stage: one reason, which every view shows.

        The error that its attempt recorded comes first (`state` has its first line), then the
        trial's own `reason`; without either, its process died too often. What the attempt did not
        record is recorded here, so that no lease is left.
        """
        newest = state.attempt
        if newest is None or newest.owner != self._owner:
            return StageState(Status.FAILED, reason or "its process died before it could begin")
        if newest.end is None:
            host = newest.details.get("host")
            reason = reason or f"its process died on every try, the last time on {host}"
            with contextlib.suppress(OSError):  # on a full disk, only this run knows the reason
                folder.attempts.end(newest.token, Ending.FAILED, error=reason)
                state = folder.state()
        if state.status is Status.FAILED:
            return state
        return StageState(Status.FAILED, reason or state.reason)

    def _ready(self) -> list[str]:
        """What is free comes before what another driver works on, then the longest path first."""
        states = self._states
        ready = [
            key
            for key, stage in self._stages.items()
            if (states[key].status is Status.WAITING or states[key].elsewhere)
            and not unfinished_parents(stage, states)
        ]
        return sorted(ready, key=lambda key: (states[key].elsewhere, -self._urgency[key]))

    def _folder(self, key: str) -> StageFolder:
        return self._store.folder(self._stages[key].kind, key)
