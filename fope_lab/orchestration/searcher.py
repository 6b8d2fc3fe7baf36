"""The DAG-aware searcher: it gives a stage to Ray Tune when the stage's parents are done.

Tune calls `suggest` for a next trial whenever it could start one. Of the stages that are ready, the
one with the longest remaining path by the plan's forecasts goes first. `None` means that nothing is
ready yet, and `FINISHED` that nothing is left. The store says what is done; the searcher only
remembers what this driver has started.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ray.tune.search import Searcher

from fope_lab.orchestration.trial import KEY, OUTCOME, OWNER, SUPERSEDE
from fope_lab.planning.capacity import Capacity
from fope_lab.planning.schedule import remaining_path
from fope_lab.store import StageFolder, StageState, Status, Store
from fope_lab.store.lease import LeaseObserver, LeaseState
from fope_lab.store.state import ENDED
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.stage_states import block_descendants, is_ready

CACHED = StageState(Status.DONE, "cached")
WAITING = StageState(Status.WAITING)
STARTED = StageState(Status.RUNNING)
ELSEWHERE = StageState(Status.RUNNING, "elsewhere")
"""Another driver runs the stage."""


class StageSearcher(Searcher):
    """Releases the stages of a plan's graph to Tune, longest remaining path first."""

    def __init__(
        self,
        stages: Sequence[Stage],
        store: Store,
        owner: str,
        capacity: Capacity,
        seconds: Mapping[str, float],
    ) -> None:
        """`stages` come parents first, and `seconds` has the plan's forecast of each by key.

        `owner` is this driver. `capacity` bounds how many stages Tune has at once: Tune starts them
        first come, first served, so that a stage given early would keep a more urgent one waiting.
        """
        super().__init__()
        self._stages = {stage.key: stage for stage in stages}
        self._store, self._owner, self._capacity = store, owner, capacity
        self._observer = LeaseObserver()
        self._trials: dict[str, str] = {}
        self._lock = threading.Lock()
        self._urgency = remaining_path(stages, seconds)
        self._states = {
            key: CACHED if self._folder(key).is_done() else WAITING for key in self._stages
        }

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Answer Tune with the configuration of the next trial, None, or FINISHED."""
        with self._lock:
            if all(state.status in ENDED for state in self._states.values()):
                return Searcher.FINISHED
            for key in self._capacity.admissible(sorted(self._ready(), key=self._order)):
                folder = self._folder(key)
                lease, token = self._observer.state(folder.attempts, self._owner)
                if folder.is_done():  # read after the lease: another driver may just have ended
                    self._states[key] = CACHED
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
        """Note that Tune ended a trial; the store says how the stage ended."""
        with self._lock:
            key = self._trials.pop(trial_id)
            self._capacity.release(key)
            state = self._folder(key).state()
            if state.is_done:
                self._states[key] = state
            elif (result or {}).get(OUTCOME) == Status.RUNNING:
                self._states[key] = WAITING
            else:
                if state.status is not Status.FAILED:
                    state = StageState(Status.FAILED, "its process died again and again")
                self._states[key] = state
                self._states = block_descendants(list(self._stages.values()), self._states)

    def states(self) -> dict[str, StageState]:
        """Return a copy of every stage's state in this run, by key."""
        with self._lock:
            return dict(self._states)

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the store holds everything, and a later run plans again from it."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing, because `save` saves nothing."""

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its arguments for `Tuner.restore`, which is not used."""
        return {}

    def _ready(self) -> Iterable[str]:
        for key, stage in self._stages.items():
            if self._states[key] in (WAITING, ELSEWHERE) and is_ready(stage, self._states):
                yield key

    def _order(self, key: str) -> tuple[bool, float]:
        """What is free comes before what another driver works on, then the longest path first."""
        return self._states[key] is ELSEWHERE, -self._urgency[key]

    def _folder(self, key: str) -> StageFolder:
        return self._store.folder(self._stages[key].kind, key)
