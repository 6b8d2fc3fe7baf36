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

from fope_lab.orchestration.phases import ENDED, Phase, StageStatus
from fope_lab.orchestration.trial import HELD, KEY, OUTCOME, OWNER, SUPERSEDE
from fope_lab.planning.capacity import Capacity
from fope_lab.planning.schedule import remaining_path
from fope_lab.store import Store
from fope_lab.store.lease import LeaseObserver, LeaseState
from fope_lab.sweep.resolve import Stage


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
        self._status = {
            key: StageStatus(Phase.DONE, cached=True)
            if self._is_done(key)
            else StageStatus(Phase.WAITING)
            for key in self._stages
        }

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Answer Tune with the configuration of the next trial, None, or FINISHED."""
        with self._lock:
            if all(status.phase in ENDED for status in self._status.values()):
                return Searcher.FINISHED
            for key in self._capacity.admissible(sorted(self._ready(), key=self._order)):
                state, token = self._observer.state(self._attempts(key), self._owner)
                if self._is_done(key):  # looked for again, now that nobody holds it
                    self._status[key] = StageStatus(Phase.DONE, cached=True)
                elif state is LeaseState.HELD:
                    self._status[key] = StageStatus(Phase.ELSEWHERE)
                else:
                    self._status[key] = StageStatus(Phase.STARTED)
                    self._trials[trial_id] = key
                    self._capacity.acquire(key)
                    supersede = token if state is LeaseState.STALE else None
                    return {KEY: key, OWNER: self._owner, SUPERSEDE: supersede}
            return None

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Note that Tune ended a trial; the store says how the stage ended."""
        with self._lock:
            key = self._trials.pop(trial_id)
            self._capacity.release(key)
            if self._is_done(key):
                self._status[key] = StageStatus(Phase.DONE)
            elif (result or {}).get(OUTCOME) == HELD:
                self._status[key] = StageStatus(Phase.WAITING)
            else:
                failure = self._store.folder(self._stages[key].kind, key).failure()
                reason = failure["error"] if failure else "its process died again and again"
                self._fail(key, reason)

    def status(self) -> dict[str, StageStatus]:
        """Return a copy of every stage's status, by key."""
        with self._lock:
            return dict(self._status)

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save: the store holds all, and a later run plans again from it."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing to restore; see `save`."""

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its arguments for `Tuner.restore`, which is not used."""
        return {}

    def _ready(self) -> Iterable[str]:
        for key, status in self._status.items():
            if status.phase in (Phase.WAITING, Phase.ELSEWHERE) and all(
                self._status[parent].phase is Phase.DONE
                for parent in self._stages[key].parents.values()
            ):
                yield key

    def _order(self, key: str) -> tuple[bool, float]:
        """What is free comes before what another driver works on, then the longest path first."""
        return self._status[key].phase is Phase.ELSEWHERE, -self._urgency[key]

    def _fail(self, key: str, reason: str) -> None:
        self._status[key] = StageStatus(Phase.FAILED, reason=reason)
        lost = {key}
        for other, stage in self._stages.items():  # parents first, so one pass reaches all
            if lost & set(stage.parents.values()) and other not in lost:
                lost.add(other)
                self._status[other] = StageStatus(
                    Phase.BLOCKED, reason=f"{self._stages[key].label} failed"
                )

    def _is_done(self, key: str) -> bool:
        return self._store.folder(self._stages[key].kind, key).is_done()

    def _attempts(self, key: str) -> Any:
        return self._store.folder(self._stages[key].kind, key).attempts
