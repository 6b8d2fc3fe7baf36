"""How far a run is: what each stage has done and how fast, and the time that is left of all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fope_lab.orchestration.failures import Cause, States, causes
from fope_lab.planning.capacity import Amounts
from fope_lab.planning.schedule import Machines
from fope_lab.planning.time_left import StageTime, TimeLeft, time_left
from fope_lab.store import StageState, Status, Store
from fope_lab.store.state import CACHED
from fope_lab.sweep.graph import Stage

ESTIMATE_SECONDS = 2.0
"""How often the time left is estimated."""
ESTIMATE_SHARE = 0.02
"""The share of a processor's time that estimating may take, in a sweep of any size."""


@dataclass(frozen=True)
class StageProgress:
    """What a stage has told of its work; None where it has told nothing, or can't know it.

    `seconds` are those that a finished stage took in all its `attempts`, and `left` those of a
    running one.
    """

    step: int | None = None
    total: int | None = None
    loss: float | None = None
    tokens_per_second: float | None = None
    flops_utilisation: float | None = None
    steps_per_second: float | None = None
    seconds: float | None = None
    attempts: int | None = None
    left: float | None = None


def stage_progress(stage: Stage, state: StageState, store: Store) -> StageProgress:
    """The progress of a stage in this state, from its folder."""
    folder = store.folder(stage.kind, stage.key)
    if state.is_done:
        taken = folder.time_taken()
        return StageProgress() if taken is None else StageProgress(**asdict(taken))
    told = folder.progress() if state.status in (Status.RUNNING, Status.INTERRUPTED) else None
    return StageProgress() if told is None else _told(told, state.status is Status.RUNNING)


def _told(told: Mapping[str, Any], running: bool) -> StageProgress:
    step, total, seconds = told["step"], told["total"], told["seconds"]
    made = step - told["first_step"]
    speed = made / seconds if made > 0 and seconds > 0 else None
    # What prepares data does not know its end: it tells of one step more than it has done.
    knows_end = total - step > 1
    return StageProgress(
        step=step,
        total=total,
        loss=told.get("loss"),
        tokens_per_second=told.get("tokens_per_second"),
        flops_utilisation=told.get("flops_utilisation"),
        steps_per_second=speed if running else None,
        left=(total - step) / speed if running and speed and knows_end else None,
    )


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment: the states, the progress of what runs, the causes, the time left.

    `latest` has the stages that this run has finished, the latest first. `elapsed` are the seconds
    since the run began.
    """

    states: States
    running: Mapping[str, StageProgress]
    latest: Sequence[tuple[Stage, StageProgress]]
    causes: Sequence[Cause]
    time_left: TimeLeft
    elapsed: float


@dataclass
class RunProgress:
    """Takes snapshots of a run of `stages`, which come parents first.

    `forecasts` are the plan's seconds by key, or None, and `room` returns what the cluster has.
    """

    stages: Sequence[Stage]
    store: Store
    forecasts: Mapping[str, float | None]
    room: Callable[[], Amounts]
    clock: Callable[[], float] = time.monotonic
    _finished: dict[str, tuple[Stage, StageProgress]] = field(default_factory=dict)
    _cached: dict[str, float] = field(default_factory=dict)
    _began: dict[str, float] = field(default_factory=dict)
    _problems: tuple[States, list[Cause]] = ({}, [])
    _estimate: TimeLeft | None = None
    _next_estimate: float = 0.0

    def __post_init__(self) -> None:
        self._started = self.clock()

    def snapshot(self, states: States) -> Snapshot:
        """How far the run is, with these states."""
        now = self.clock()
        running: dict[str, StageProgress] = {}
        for stage in self.stages:
            state = states[stage.key]
            if state.status is Status.RUNNING:
                self._began.setdefault(stage.key, now)
                running[stage.key] = stage_progress(stage, state, self.store)
            elif state.is_done:
                self._note_finished(stage, state)
            else:
                self._began.pop(stage.key, None)
        if now >= self._next_estimate or self._estimate is None:
            self._estimate = self._time_left(states, running, now)
            took = self.clock() - now
            self._next_estimate = now + max(ESTIMATE_SECONDS, took / ESTIMATE_SHARE)
        latest = list(reversed(self._finished.values()))
        return Snapshot(
            states, running, latest, self._causes(states), self._estimate, now - self._started
        )

    def _note_finished(self, stage: Stage, state: StageState) -> None:
        if stage.key in self._finished or stage.key in self._cached:
            return
        progress = stage_progress(stage, state, self.store)
        if state == CACHED:
            self._cached[stage.key] = progress.seconds or 0.0
        else:
            self._finished[stage.key] = (stage, progress)

    def _causes(self, states: States) -> list[Cause]:
        """The causes of failures, read again only when more stages have failed."""
        failed = {key: state for key, state in states.items() if state.status is Status.FAILED}
        if failed != self._problems[0]:
            self._problems = (failed, causes(self.stages, states, self.store))
        return self._problems[1]

    def _time_left(
        self, states: States, running: Mapping[str, StageProgress], now: float
    ) -> TimeLeft:
        measured = {
            key: StageTime(progress.seconds)
            for key, (_, progress) in self._finished.items()
            if progress.seconds is not None and states[key].is_done
        }
        for key, progress in running.items():
            if progress.left is not None and progress.total and progress.steps_per_second:
                whole = progress.total / progress.steps_per_second
                measured[key] = StageTime(whole, progress.left)
        stopped = {
            key
            for key, state in states.items()
            if state.is_unneeded or state.status in (Status.FAILED, Status.BLOCKED)
        }
        return time_left(
            self.stages,
            self.forecasts,
            measured,
            cached={key: seconds for key, seconds in self._cached.items() if states[key].is_done},
            begun={key: now - self._began[key] for key in running},
            stopped=stopped,
            machines=self._machines(),
        )

    def _machines(self) -> Machines:
        """What the cluster has, but at least what the largest stage asks for, as it may grow."""
        there = self.room()
        resources = [stage.spec.resources for stage in self.stages]
        return Machines(
            cpus=max(there.get("CPU", 0.0), *(r.cpus * r.size for r in resources)),
            gpus=max(there.get("GPU", 0.0), *(float(r.gpus) for r in resources)),
        )
