"""How far a run is: why stages failed, what each has done, and the time that is left.

The numbers come from the store, and the states from the run's searcher, or, for `fope-lab status`
on any machine, from the store and its heartbeats (`observe_states`).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from rich.console import Console

from fope_lab.config.console import say
from fope_lab.config.problems import counted
from fope_lab.planning.needed_stages import NeededStates
from fope_lab.planning.schedule import (
    Amounts,
    Demand,
    Machines,
    StageTime,
    TimeLeft,
    amounts_text,
    time_left,
)
from fope_lab.store.folder import observe
from fope_lab.store.root import Store
from fope_lab.store.state import CACHED, StageState, Status
from fope_lab.sweep.graph import Stage, Sweep
from fope_lab.sweep.plan import block_descendants, missing_input, read_states

States = Mapping[str, StageState]
"""The state of every stage by its key."""

PROBLEMS = (Status.DAMAGED, Status.INTERRUPTED, Status.BLOCKED, Status.FAILED)
"""The statuses whose cause the user wants to know, the most urgent last."""
STYLES = {
    Status.FAILED: "bold red",
    Status.RUNNING: "bold cyan",
    Status.DAMAGED: "yellow",
    Status.INTERRUPTED: "yellow",
    Status.WAITING: "dim",
    Status.NOT_STARTED: "dim",
    Status.BLOCKED: "red",
    Status.IF_NEEDED: "dim",
    Status.NOT_NEEDED: "dim",
    Status.DONE: "green",
}
"""How each status is drawn."""
MOST_LABELS = 4
"""How many stages of a cause are named; the others are counted."""
LONG_SECONDS = 10.0
"""How long a slot may take to start before that is told."""
ESTIMATE_SECONDS = 2.0
"""How often the time left is estimated."""
ESTIMATE_SHARE = 0.02
"""The share of a processor's time that estimating may take, in a sweep of any size."""


@dataclass(frozen=True)
class Cause:
    """Why stages have a status: the whole error, and the log of the first of them."""

    status: Status
    error: str
    stages: tuple[Stage, ...]
    log: Path | None

    def __str__(self) -> str:
        """Such as "failed 3 stages: out of memory" with the stages, or "failed LABEL: …"."""
        names, log = [stage.label for stage in self.stages], "log"
        text = f"{self.status} {names[0]}: {self.error}"
        if len(names) > 1:
            whose = f"{len(names)} stages: {self.error}\n  {listed(names, MOST_LABELS)}"
            text, log = f"{self.status} {whose}", "log of the first"
        return f"{text} ({log}: {self.log})" if self.log else text


def causes(stages: Sequence[Stage], states: States, store: Store) -> list[Cause]:
    """Each cause of a problem once, those of failures last.

    Errors that differ only in the stage's label, key or folder are one cause.
    """
    found: dict[tuple[Status, str], Cause] = {}
    for stage in stages:
        state = states.get(stage.key)
        if state is None or state.status not in PROBLEMS or is_blocked_by_another(stage, states):
            continue
        end = (state.attempt and state.attempt.end) or {}  # as Attempt.fail wrote it
        recorded = state.status is Status.FAILED and "error" in end
        same = error = str(end["error"]) if recorded else state.reason
        folder = store.folder(stage.kind, stage.key)
        for own in (str(folder.path), stage.key, stage.label):
            same = same.replace(own, "")
        log = folder.paths.log if folder.paths.log.exists() else None
        first = found.setdefault((state.status, same), Cause(state.status, error, (), log))
        found[state.status, same] = replace(first, stages=(*first.stages, stage))
    return sorted(found.values(), key=lambda cause: PROBLEMS.index(cause.status))


def print_problems(
    stages: Sequence[Stage], states: States, store: Store, console: Console, most: int | None = None
) -> None:
    """Print why stages failed or can't go on, each cause once, and how many stages they block.

    Of each status, the first `most` causes are printed, and the others counted. While a run goes
    on, live_view.py draws the same causes.
    """
    found = causes(stages, states, store)
    for status in PROBLEMS:
        alike = [cause for cause in found if cause.status is status]
        for cause in alike[:most]:
            say(console, str(cause), style=STYLES[status])
        if rest := alike[len(alike[:most]) :]:
            of = counted(sum(len(cause.stages) for cause in rest))
            text = f"{status} {of} more, for {len(rest)} other reasons; see `fope-lab status`"
            say(console, text, style=STYLES[status])
    if blocked := sum(is_blocked_by_another(stage, states) for stage in stages):
        say(console, f"blocked by them: {counted(blocked)}", style=STYLES[Status.BLOCKED])


def is_blocked_by_another(stage: Stage, states: States) -> bool:
    """Whether a stage is blocked because an ancestor failed or is blocked, and not by itself."""
    if stage.key not in states or states[stage.key].status is not Status.BLOCKED:
        return False
    parents = (states[key].status for key in stage.parents.values() if key in states)
    return any(status in (Status.FAILED, Status.BLOCKED) for status in parents)


def listed(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f", … and {more:,} more" if more > 0 else "")


@dataclass(frozen=True)
class StageProgress:
    """What a stage has told of its work: a finished one the `seconds` of all its `attempts`, a
    running one those that are `left`."""

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
    if told is None:
        return StageProgress()
    step, total, seconds = told["step"], told["total"], told["seconds"]
    made, running = step - told["first_step"], state.status is Status.RUNNING
    speed = made / seconds if running and made > 0 and seconds > 0 else None
    # A preparation of data does not know its end: it reports one step more than it has done.
    left = (total - step) / speed if speed and total - step > 1 else None
    names = ("step", "total", "loss", "tokens_per_second", "flops_utilisation")
    given = {name: told.get(name) for name in names}
    return StageProgress(**given, steps_per_second=speed, left=left)


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment: the states, the progress of what runs, the causes, the time left.

    `latest` has the stages that this run has finished, the latest first. `elapsed` are the seconds
    since the run began. `waits` says, in a line for each size of slot, what has been waited for
    long.
    """

    states: States
    running: Mapping[str, StageProgress]
    latest: Sequence[tuple[Stage, StageProgress]]
    causes: Sequence[Cause]
    time_left: TimeLeft
    elapsed: float
    waits: Sequence[str] = ()


@dataclass
class RunProgress:
    """Takes snapshots of a run of `stages`, parents first; `room` returns what the cluster has, and
    `slots` what each slot without a process asks for, and for how many seconds it has."""

    stages: Sequence[Stage]
    store: Store
    forecasts: Mapping[str, float | None]
    room: Callable[[], Amounts]
    slots: Callable[[], Sequence[tuple[Demand, float]]] = lambda: ()
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
            elif not state.is_done:
                self._began.pop(stage.key, None)
            elif stage.key not in self._finished and stage.key not in self._cached:
                progress = stage_progress(stage, state, self.store)
                if state == CACHED:
                    self._cached[stage.key] = progress.seconds or 0.0
                else:
                    self._finished[stage.key] = (stage, progress)
        if now >= self._next_estimate or self._estimate is None:
            self._estimate = self._time_left(states, running, now)
            took = self.clock() - now
            self._next_estimate = now + max(ESTIMATE_SECONDS, took / ESTIMATE_SHARE)
        failed = {key: state for key, state in states.items() if state.status is Status.FAILED}
        if failed != self._problems[0]:  # reading the causes takes a while
            self._problems = (failed, causes(self.stages, states, self.store))
        latest, elapsed = list(reversed(self._finished.values())), now - self._started
        waits = list(self._waits())
        return Snapshot(states, running, latest, self._problems[1], self._estimate, elapsed, waits)

    def _waits(self) -> Iterator[str]:
        by_size = defaultdict[str, list[float]](list)
        for demand, seconds in self.slots():
            workers = f" for {demand.workers} workers" if demand.workers > 1 else ""
            by_size[f"{amounts_text(demand.amounts)}{workers}"].append(seconds)
        for size, times in by_size.items():
            if (longest := max(times)) >= LONG_SECONDS:
                there = amounts_text({"CPU": 0, "GPU": 0} | dict(self.room()))
                slots = (
                    f"{len(times)} slots of {size} each" if len(times) > 1 else f"a slot of {size}"
                )
                yield f"{slots}, asked for {longest:.0f} s ago; the cluster has {there}"

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
        # What the cluster has, but at least what the largest stage asks for, as it may grow.
        there, asked = self.room(), [stage.spec.resources for stage in self.stages]
        machines = Machines(
            cpus=max(there.get("CPU", 0.0), *(r.cpus * r.size for r in asked)),
            gpus=max(there.get("GPU", 0.0), *(float(r.gpus) for r in asked)),
        )
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
            machines=machines,
        )


def observe_states(sweeps: Sequence[Sweep], store: Store) -> States:
    """The states of all stages as another process can tell them, which takes a moment if any runs.

    As in a plan, a stage that lacks its data is blocked, and an unneeded seed says so.
    """
    stages = list({stage.key: stage for sweep in sweeps for stage in sweep.stages}.values())
    states = read_states(stages, store)
    running = [stage for stage in stages if states[stage.key].status is Status.RUNNING]
    live = store.live()  # a snapshot would show no heartbeat
    observed = observe([live.folder(stage.kind, stage.key) for stage in running])
    states |= {stage.key: state for stage, state in zip(running, observed, strict=True)}
    for stage in stages:
        state = states[stage.key]
        may_start = state.status not in (Status.DONE, Status.RUNNING, Status.FAILED)
        if may_start and (missing := missing_input(stage, store)):
            states[stage.key] = replace(state, status=Status.BLOCKED, reason=missing)
    return NeededStates(sweeps, store).of(block_descendants(stages, states))
