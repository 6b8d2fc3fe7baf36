"""The DAG-aware searcher: it asks Ray Tune for slots, and gives each a stage when it is free.

A trial of Tune is a slot: a process with the resources of one size of stage, which does one stage
after another (trial.py). Tune calls `suggest` whenever it could start a trial; the searcher asks
for one while more stages are ready than slots are starting. A slot gets its stage when it has
loaded torch, or has reported how its last one ended: the most urgent one that is ready then. So
every slot works however short its stages are, and only what is at work grows with the cluster, not
with the sweep. pace.py says when another slot is worth its start.

Of the stages that are ready, the one with the longest remaining path by the plan's forecasts goes
first. The store says what is done; the searcher keeps the state of each stage in this run.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ray.tune.search import Searcher

from fope_lab.orchestration.pace import Pace, Starts
from fope_lab.orchestration.trial import (
    NODE_LOSSES,
    PROCESS_RETRIES,
    REASON,
    SLOT,
    STATUS,
    WORKERS,
    Order,
)
from fope_lab.planning.schedule import Capacity, Demand, Size, remaining_path
from fope_lab.store.attempts import Ending, LeaseHeldError
from fope_lab.store.folder import StageFolder
from fope_lab.store.lease import LeaseObserver, LeaseState, SignsOfLife
from fope_lab.store.root import Store
from fope_lab.store.state import CACHED, ENDED, StageState, Status
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.plan import (
    other_parents,
    output_digest,
    read_other_output,
    unfinished_parents,
)

WAITING = StageState(Status.WAITING)
STARTED = StageState(Status.RUNNING)
ELSEWHERE = StageState(Status.RUNNING, elsewhere=True)
LOST = (Status.FAILED, Status.BLOCKED)
"""The statuses of a parent for which a stage no longer waits."""
LOOK_SECONDS = 0.5
"""How often the searcher looks at a stage that another driver runs, and for signs of life."""

Give = Callable[[str, Order | None], None]
"""Leaves a trial's next order where the trial finds it, or that there is none."""
ReadWaits = Callable[[], Sequence[tuple[Demand, float]]]
"""Returns what each slot without a process asks for, and for how many seconds it has."""


@dataclass
class Slot:
    """A trial, what it occupies, and the stage that it does: None while it starts, and once no
    stage is left for it."""

    demand: Demand
    since: float
    """When it began to start."""
    key: str | None = None
    starting: bool = True
    """Until it asks for its first stage."""
    placed: bool = False
    """Whether its process is there."""
    false_starts: int = 0
    killed: bool = False


class StageSearcher(Searcher):
    """Releases the stages of a plan's graph to Tune, longest remaining path first."""

    def __init__(
        self,
        stages: Sequence[Stage],
        store: Store,
        owner: str,
        capacity: Capacity,
        seconds: Mapping[str, float],
        give: Give,
        is_ending: Callable[[], bool] = lambda: False,
        needed: Callable[[Mapping[str, StageState]], Mapping[str, StageState]] = lambda states: (
            states
        ),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`stages` come parents first, and `seconds` has the plan's forecast of each by key.

        `capacity` bounds how many slots Tune has at once: it starts them first come, first served,
        so that one asked for early would keep a more urgent stage waiting. `needed` updates the
        states of stages that results have shown to be needed, or not. `clock` returns seconds.
        """
        super().__init__()
        self._stages = {stage.key: stage for stage in stages}
        self._children = defaultdict[str, list[str]](list)
        for stage in stages:
            for parent in dict.fromkeys(stage.parents.values()):
                self._children[parent].append(stage.key)
        self._store, self._owner, self._capacity, self._give = store, owner, capacity, give
        self._observer = LeaseObserver()
        self._slots: dict[str, Slot] = {}
        self._reruns: dict[str, str] = {}
        self._damaged: set[str] = set()
        self._deaths: Counter[tuple[str, bool]] = Counter()  # by stage, and whether with its node
        self._life, self._next_look = SignsOfLife(clock), 0.0
        self._have_timeouts = any(stage.spec.timeout is not None for stage in stages)
        self._is_unsettled, self._next_settling = False, 0.0
        self._lock = threading.Lock()
        self._is_ending, self._needed, self._clock = is_ending, needed, clock
        urgency = remaining_path(stages, seconds)
        self._rank = {key: (-urgency[key], i) for i, key in enumerate(self._stages)}
        self._ready: list[tuple[tuple[float, int], str]] = []  # by rank, the most urgent first
        self._ready_of = Counter[Size]()  # how many of each size
        self._starts = Starts()
        self._paces = defaultdict[Size, Pace](lambda: Pace(clock))
        self._looks: dict[str, float] = {}  # when to look again at what another driver runs
        self._open = set(self._stages)
        self._states = dict.fromkeys(self._stages, WAITING)
        for key in self._stages:
            if self._folder(key).is_done():
                self._states[key] = CACHED
        for stage in stages:
            self._set(stage.key, self._states[stage.key])
        for stage in stages:
            self._rerun_if_parents_changed(stage)
        self._settle()

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Answer Tune with the configuration of the next slot, None, or FINISHED."""
        with self._lock:
            # While nothing runs, Tune asks again and again, and does nothing else for ten minutes.
            if self._is_ending() or self.is_over():
                return Searcher.FINISHED
            starting, passed = self._starting(), list[str]()
            while (key := self._most_urgent(passed)) is not None:
                demand = self._capacity.demands[key]
                if starting[demand.size]:  # a slot that starts takes this one
                    starting[demand.size] -= 1
                    passed.append(key)
                elif self._enough_start(demand.size) and self._capacity.fits(demand):
                    return None
                elif self._order(key) is not None:
                    self._slots[trial_id] = Slot(demand, self._clock())
                    self._capacity.acquire(trial_id, demand)
                    return {SLOT: demand.amounts, WORKERS: demand.workers}
            return None

    def on_trial_start(self, trial_id: str) -> None:
        """Note that the process of a slot is there."""
        self._slots[trial_id].placed = True

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Note that a slot has started, also after its process died, or how its stage has ended;
        and give it the next one."""
        with self._lock:
            slot = self._slots[trial_id]
            if slot.starting:
                slot.starting = slot.killed = False
                self._starts.note(self._clock() - slot.since)
                slot.false_starts = 0
            else:
                self._note_end(slot, result)
            self._give(trial_id, None if slot.killed else self._next_order(trial_id))

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Note that Tune ended a slot: no stage was left for it."""
        with self._lock:
            slot = self._slots.pop(trial_id)
            self._capacity.release(trial_id)
            if slot.key is not None:
                self._note_death(slot, lost_node=False)

    def note_death(self, trial_id: str, *, lost_node: bool = False) -> None:
        """Note that the process of a slot died, maybe with its node; Tune starts another one."""
        with self._lock:
            if (slot := self._slots.get(trial_id)) is None:
                return
            if slot.key is not None:
                self._note_death(slot, lost_node=lost_node)
            elif slot.starting and not lost_node:
                self._note_false_start(slot)
            slot.starting, slot.placed, slot.since = True, False, self._clock()

    def silent(self) -> Mapping[str, Stage]:
        """Fail every stage that has told of no progress for its timeout; returns them by the slots
        that do them, whose processes are to be killed."""
        now, found = self._clock(), dict[str, Stage]()
        if not self._have_timeouts or now < self._next_look:
            return found
        self._next_look = now + LOOK_SECONDS
        with self._lock:
            for trial_id, slot in self._slots.items():
                if slot.key is not None and (stage := self._stages[slot.key]).spec.timeout:
                    folder = self._folder(slot.key)
                    if stage.spec.resources.size > 1 and folder.progress() is None:
                        continue  # its workers wait for room
                    silent = self._life.silent_for(folder.paths, folder.attempts)
                    if silent >= 60 * stage.spec.timeout and not folder.is_done():
                        reason = f"no progress for {stage.spec.timeout:g} min, its timeout"
                        self._set(slot.key, self._failed(folder, folder.state(), reason))
                        slot.key, slot.killed = None, True
                        found[trial_id] = stage
            if found:
                self._settle()
        return found

    def waits(self) -> list[tuple[Demand, float]]:
        """What each slot without a process asks for, and for how many seconds it has."""
        now = self._clock()
        with self._lock:
            return [(s.demand, now - s.since) for s in self._slots.values() if not s.placed]

    def is_over(self) -> bool:
        """Whether every stage has ended, as far as results have shown."""
        return not self._open

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

    def _next_order(self, trial_id: str) -> Order | None:
        """The most urgent stage for a slot without one. None ends the slot: no stage of its size is
        ready, or a more urgent one of another size needs its room."""
        slot = self._slots[trial_id]
        self._capacity.release(trial_id)
        starting = self._starting()
        passed: list[str] = []  # more urgent ones of other sizes, for which there is room besides
        order = None
        while not self._is_ending() and (key := self._most_urgent(passed)) is not None:
            demand = self._capacity.demands[key]
            if demand.size == slot.demand.size:
                if (order := self._order(key)) is not None:
                    slot.key, slot.demand = key, demand
                    self._life.forget(self._folder(key).paths)
                    self._set(key, replace(STARTED, reason=self._states[key].reason))
                    break
            elif starting[demand.size]:  # a slot that starts takes this one
                starting[demand.size] -= 1
                passed.append(key)
            elif self._capacity.fits(demand, beside=slot.demand):
                self._capacity.acquire(key, demand)
                passed.append(key)
            else:
                break
        for key in passed:
            self._capacity.release(key)
        self._capacity.acquire(trial_id, slot.demand)
        return order

    def _enough_start(self, size: Size) -> bool:
        """Whether no other slot of a size may start now, or is worth its start."""
        now, slots = self._clock(), self._slots.values()
        since = [now - slot.since for slot in slots if slot.starting]
        if self._starts.are_enough(since):
            return True
        working = sum(slot.key is not None and slot.demand.size == size for slot in slots)
        return self._paces[size].is_enough(self._ready_of[size], working, len(since))

    def _starting(self) -> Counter[Size]:
        """How many slots of each size are starting."""
        return Counter(slot.demand.size for slot in self._slots.values() if slot.starting)

    def _order(self, key: str) -> Order | None:
        """The order to do a stage that may start, unless another driver has done it or does it."""
        folder = self._folder(key)
        lease, token = self._observer.state(folder.attempts, self._owner)
        if folder.is_done():  # read after the lease: another driver may just have ended
            self._set(key, CACHED)
            self._rerun_children(self._stages[key])
            self._settle()
            return None
        if lease is LeaseState.HELD:
            self._set(key, ELSEWHERE)
            return None
        stage = self._stages[key]
        stages = {name: self._stages[name] for name in (key, *stage.parents.values())}
        supersede = token if lease is LeaseState.STALE else None
        return Order(key, stages, self._owner, supersede)

    def _most_urgent(self, passed: Collection[str]) -> str | None:
        """The stage that may start next, but for those `passed`: what is free comes before what
        another driver works on, then the longest path first."""
        if self._is_unsettled:
            self._settle()
        now = self._clock()
        due = [key for key, when in self._looks.items() if when <= now]
        waits = (key for key in due if not unfinished_parents(self._stages[key], self._states))
        elsewhere = sorted(waits, key=self._rank.__getitem__)
        ready = (
            key
            for key in itertools.chain((k for _, k in self._ready), elsewhere)
            if key not in passed
        )
        return next(self._capacity.admissible(ready), None)

    def _note_end(self, slot: Slot, result: Mapping[str, Any]) -> None:
        """Note how the stage of a slot ended: the store says it, else the slot's report."""
        key, slot.key = slot.key, None
        if key is None:
            return
        self._paces[slot.demand.size].note_end()
        folder = self._folder(key)
        state, status, reason = folder.state(), result.get(STATUS), result.get(REASON)
        lease, _ = self._observer.state(folder.attempts, self._owner)
        if state.is_done:
            self._set(key, replace(state, reason=self._reruns.get(key, "")))
            self._rerun_if_parents_changed(self._stages[key])
            self._rerun_children(self._stages[key])
        elif status == Status.WAITING:  # it found a parent damaged, and moved that away
            self._rerun_parents(key, reason or "")
        elif status == Status.INTERRUPTED:  # it was asked to stop
            begun = state.attempt is not None and state.attempt.owner == self._owner
            self._set(key, replace(state, status=Status.INTERRUPTED) if begun else WAITING)
        elif status == Status.RUNNING or (lease is LeaseState.HELD and not reason):
            # Another driver has the stage; it may have taken it from a process that died.
            self._set(key, WAITING)
        else:
            self._set(key, self._failed(folder, state, reason))
        self._settle()

    def _note_death(self, slot: Slot, *, lost_node: bool) -> None:
        """Let another process go on with the stage of a slot that died, unless it dies on every
        try, or takes its nodes with it."""
        key = slot.key
        assert key is not None
        self._deaths[key, lost_node] += 1
        times, most = self._deaths[key, lost_node], NODE_LOSSES if lost_node else PROCESS_RETRIES
        if times > most:
            self._note_end(slot, {})
            return
        slot.key = None
        died = "its node was lost" if lost_node else "its process died"
        tries = f"time {times}" if lost_node else f"try {times + 1} of {most + 1}"
        self._reruns[key] = f"{self._stages[key].label}: {died}, and another one went on"
        self._set(key, replace(WAITING, reason=f"{died}; {tries}"))

    def _note_false_start(self, slot: Slot) -> None:
        """Fail the stage that a slot would have done whose process died on every try to start."""
        slot.false_starts += 1
        if slot.false_starts <= PROCESS_RETRIES:
            return
        slot.false_starts = 0
        for _, key in self._ready:
            if self._capacity.demands[key].size == slot.demand.size:
                folder = self._folder(key)
                self._set(key, self._failed(folder, folder.state(), None))
                self._settle()
                return

    def _rerun_parents(self, key: str, reason: str) -> None:
        for parent in self._stages[key].parents.values():
            # Another child may have found the same damage first: then the parent already runs.
            if self._states[parent].is_done and not self._folder(parent).is_done():
                if parent in self._damaged:  # its disk loses writes
                    self._set(parent, StageState(Status.FAILED, f"damaged twice: {reason}"))
                else:
                    self._reruns[parent] = reason
                    self._damaged.add(parent)
                    self._set(parent, WAITING)
        self._set(key, WAITING)

    def _settle(self) -> None:
        """Take over which stages results show to be needed, or not. All results are read for it, so
        that it takes longer the more stages there are: while there is other work, no more than a
        tenth of the time."""
        began = self._clock()
        self._is_unsettled = bool(self._ready) and began < self._next_settling
        if self._is_unsettled:
            return
        if (needed := self._needed(self._states)) is not self._states:
            for key, state in needed.items():
                if state is not self._states[key] and state != self._states[key]:
                    self._set(key, state)
        now = self._clock()
        self._next_settling = now + 9 * (now - began)

    def _set(self, key: str, state: StageState) -> None:
        """Give a stage a new state, and its descendants what follows: a stage waits for its
        parents, and is blocked once it has lost one."""
        before = self._states[key]
        if state.status is Status.WAITING:
            for parent in unfinished_parents(self._stages[key], self._states):
                if (lost := self._states[parent]).status in LOST:
                    label = self._stages[parent].label
                    reason = f"{label} failed" if lost.status is Status.FAILED else lost.reason
                    state = replace(state, status=Status.BLOCKED, reason=reason)
                    break
        self._states[key] = state
        (self._open.discard if state.status in ENDED else self._open.add)(key)
        self._looks.pop(key, None)
        if state.elsewhere:
            self._looks[key] = self._clock() + LOOK_SECONDS
        place = self._rank[key], key
        at = bisect.bisect_left(self._ready, place)
        is_there = self._ready[at : at + 1] == [place]
        if is_there is not (is_ready := self._is_ready(key)):
            self._ready_of[self._capacity.demands[key].size] += 1 if is_ready else -1
            self._ready[at : at + is_there] = [place] if is_ready else []
        if before.is_done is not state.is_done or state.status in LOST:
            for child in self._children[key]:
                if (of := self._states[child]).status is Status.WAITING or of.elsewhere:
                    self._set(child, replace(WAITING, reason="" if of.elsewhere else of.reason))

    def _is_ready(self, key: str) -> bool:
        waits = self._states[key].status is Status.WAITING
        return waits and not unfinished_parents(self._stages[key], self._states)

    def _rerun_children(self, parent: Stage) -> None:
        """Re-run the finished children of a stage that has just finished with another output than
        they read: its own was damaged or removed."""
        digest = output_digest(self._folder(parent.key))
        for child in (self._stages[key] for key in self._children[parent.key]):
            if self._states[child.key].is_done:
                read = self._folder(child.key).parents_read()
                roles = [role for role, key in child.parents.items() if key == parent.key]
                if any(read.get(role) != digest for role in roles):
                    self._rerun(child, f"{child.label}: its parent {parent.label} was re-run")

    def _rerun_if_parents_changed(self, stage: Stage) -> None:
        """Re-run a finished stage if a parent has other output by now than it read."""
        if self._states[stage.key].is_done and (
            others := other_parents(stage, self._stages, self._store)
        ):
            self._rerun(stage, f"{stage.label}: {read_other_output(others)}")

    def _rerun(self, stage: Stage, reason: str) -> None:
        with contextlib.suppress(LeaseHeldError):  # another driver does the same
            self._folder(stage.key).set_aside(self._owner, reason)
        self._reruns[stage.key] = reason
        self._set(stage.key, WAITING)

    def _failed(self, folder: StageFolder, state: StageState, reason: str | None) -> StageState:
        """Why a slot ended without finishing its stage: one reason, which every view shows.

        The error that its attempt recorded comes first (`state` has its first line), then the
        slot's own `reason`; without either, its process died too often. What the attempt did not
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

    def _folder(self, key: str) -> StageFolder:
        return self._store.folder(self._stages[key].kind, key)
