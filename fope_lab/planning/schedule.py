"""Which stage may start next, and how long a graph of stages takes by the clock.

`Capacity` is the one scheduling policy: the controller asks it of a real cluster, and `wall_time`
simulates it. A stage counts with all its workers from the moment it starts, which Tune does not.
The most urgent stage goes first. While it has no room, a less urgent one may start if, by the
forecast of its time, the urgent one need not wait for it: EASY backfilling, Mu'alem & Feitelson,
"Utilization, Predictability, Workloads, and User Runtime Estimates in Scheduling the IBM SP2 with
Backfilling" (2001).

Urgent is what has the longest remaining path (Graham, "Bounds on Multiprocessing Timing Anomalies",
1969: with equal processors at most twice the best order's time). No order beats two bounds: the
longest chain of stages, and all work shared out evenly.
"""

from __future__ import annotations

import bisect
import functools
import heapq
import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fope_lab.stages.base import Resources
from fope_lab.sweep.graph import Stage

Amounts = Mapping[str, float]
"""An amount of each of Ray's resources, by its name."""

TOLERANCE = 1e-6  # of sums of fractions

RAYS_OWN = re.compile(r"memory$|object_store_memory$|node:|.*_group_(\d+_)?[0-9a-f]{32,}$")
"""The names of resources that Ray adds: of memory, nodes and placement groups."""

Size = tuple[int, tuple[tuple[str, float], ...]]
"""The number of a stage's workers, and what they occupy. Stages of one size fit the same slot."""


@dataclass(frozen=True)
class Demand:
    """What all workers of a stage occupy together, and the forecast of its time in seconds."""

    amounts: Amounts
    seconds: float
    workers: int = 1

    @functools.cached_property
    def size(self) -> Size:
        return self.workers, tuple(sorted(self.amounts.items()))


@dataclass(frozen=True)
class Lookahead:
    """How many slots may be asked for before there is room for them, so that an autoscaler sees
    them.

    `groups` bounds how many of them are for several workers: each has a process that waits for
    them.
    """

    stages: int = 0
    groups: int = 0


class Capacity:
    """What the slots at work occupy, against what the cluster has."""

    def __init__(
        self,
        demands: Mapping[str, Demand],
        total: Callable[[], Amounts],
        lookahead: Lookahead = Lookahead(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`demands` are by the stages' keys, `total` returns what the cluster has now, and `clock`
        the time in seconds."""
        self.demands, self._total = demands, total
        self._lookahead, self._clock = lookahead, clock
        self._used: dict[str, float] = {}
        self._held: dict[str, tuple[float, Demand]] = {}
        # Many stages occupy the same: each size is compared with the room once for all of them.
        self._sizes = {demand.size for demand in demands.values()}

    def acquire(self, slot: str, demand: Demand) -> None:
        """Note that the slot of this name begins what has this demand."""
        self._held[slot] = self._clock() + demand.seconds, demand
        _add(self._used, demand.amounts, 1)

    def release(self, slot: str) -> None:
        """Note that the slot of this name, if there is one, occupies nothing any more."""
        if slot in self._held:
            _add(self._used, self._held.pop(slot)[1].amounts, -1)

    def fits(self, demand: Demand, beside: Demand | None = None) -> bool:
        """Whether there is room for one demand, if another one is met first."""
        free = self._free()
        _add(free, beside.amounts if beside else {}, -1)
        return _fits(demand.amounts.items(), free)

    def admissible(self, ready: Iterable[str]) -> Iterator[str]:
        """Yield the stages of `ready`, most urgent first, any of which may start now. After the
        caller acquires a slot, the rest of the iteration is out of date."""
        free = self._free()
        fitting, now = self._fitting(free), self._clock()
        reserved: tuple[float, frozenset[Size]] | None = None  # by an urgent stage that waits
        for key in ready:
            demand = self.demands[key]
            if reserved is not None:
                room_from, room_besides = reserved
                in_time = now + demand.seconds <= room_from
                if demand.size in fitting and (in_time or demand.size in room_besides):
                    yield key
            elif demand.size in fitting or self._may_wait(demand):
                yield key
            elif not fitting:
                return
            else:
                reserved = self._reserve(demand, free)

    def _free(self) -> dict[str, float]:
        free = dict(self._total())
        _add(free, self._used, -1)
        return free

    def _fitting(self, free: Amounts) -> frozenset[Size]:
        return frozenset(size for size in self._sizes if _fits(size[1], free))

    def _may_wait(self, demand: Demand) -> bool:
        groups = sum(held.workers > 1 for _, held in self._held.values())
        if demand.workers > 1:
            return groups < self._lookahead.groups
        # Single stages would be placed before a group that waits for more room than they need.
        return not groups and len(self._held) < self._lookahead.stages

    def _reserve(self, demand: Demand, free: Amounts) -> tuple[float, frozenset[Size]]:
        """When a stage without room now will have it, and for which sizes there is room besides."""
        spare = dict(free)
        for end, held in sorted(self._held.values(), key=lambda pair: pair[0]):
            _add(spare, held.amounts, 1)
            if _fits(demand.amounts.items(), spare):
                _add(spare, demand.amounts, -1)
                return end, self._fitting(spare)
        return math.inf, self._fitting(spare)


def amounts(resources: Resources) -> dict[str, float]:
    """What all workers of a stage occupy, in Ray's names."""
    gpus = {"GPU": resources.gpus} if resources.gpus else {}
    return {"CPU": resources.cpus * resources.size, **gpus}


def amounts_text(there: Amounts) -> str:
    """What people ask for, such as "4 CPU, 1 GPU", without what Ray has besides."""
    named = {name: amount for name, amount in there.items() if not RAYS_OWN.match(name)}
    return ", ".join(f"{amount:g} {name}" for name, amount in named.items())


def _fits(wanted: Iterable[tuple[str, float]], there: Amounts) -> bool:
    return all(amount <= there.get(name, 0.0) + TOLERANCE for name, amount in wanted)


def _add(there: dict[str, float], amounts: Amounts, sign: int) -> None:
    for name, amount in amounts.items():
        there[name] = there.get(name, 0.0) + sign * amount


@dataclass(frozen=True)
class Machines:
    """How many cores and GPUs there are in all."""

    cpus: float
    gpus: float


@dataclass(frozen=True)
class WallTime:
    """Seconds by the clock: the two lower bounds, and what the simulated schedule takes."""

    longest_chain: float
    shared_work: float
    scheduled: float

    @property
    def bound(self) -> float:
        """The larger of the two bounds; no order of the stages takes less time."""
        return max(self.longest_chain, self.shared_work)


def wall_time(
    stages: Sequence[Stage], seconds: Mapping[str, float], machines: Machines
) -> WallTime:
    """Return the time of the stages whose keys are in `seconds`; `stages` has parents first.

    Parents that are not in `seconds` are done. A stage that asks for more than there is gets all.
    """
    todo = [stage for stage in stages if stage.key in seconds]
    total = {"CPU": machines.cpus, "GPU": machines.gpus}
    demands = {
        stage.key: Demand(
            {name: min(most, total[name]) for name, most in amounts(stage.spec.resources).items()},
            seconds[stage.key],
            stage.spec.resources.size,
        )
        for stage in todo
    }
    remaining = remaining_path(todo, seconds)
    work = {
        name: sum(demand.seconds * demand.amounts.get(name, 0.0) for demand in demands.values())
        for name in total
    }
    return WallTime(
        longest_chain=max(remaining.values(), default=0.0),
        shared_work=max(work[name] / has if has else 0.0 for name, has in total.items()),
        scheduled=_simulate(todo, demands, remaining, total),
    )


def remaining_path(stages: Sequence[Stage], seconds: Mapping[str, float]) -> dict[str, float]:
    """Return each stage's seconds with those of the longest chain of `stages` after it, by key."""
    longest = {stage.key: 0.0 for stage in stages}
    for stage in reversed(stages):
        longest[stage.key] += seconds[stage.key]
        for parent in stage.parents.values():
            if parent in longest:
                longest[parent] = max(longest[parent], longest[stage.key])
    return longest


def _simulate(
    stages: Sequence[Stage],
    demands: Mapping[str, Demand],
    remaining: Mapping[str, float],
    total: Mapping[str, float],
) -> float:
    now = 0.0
    capacity = Capacity(demands, lambda: total, clock=lambda: now)
    waits_for = {s.key: {p for p in s.parents.values() if p in demands} for s in stages}
    children = defaultdict[str, list[str]](list)
    for key, parents in waits_for.items():
        for parent in parents:
            children[parent].append(key)
    ready = sorted((-remaining[key], key) for key, parents in waits_for.items() if not parents)
    running: list[tuple[float, str]] = []
    while running or ready:
        while (start := next(capacity.admissible(key for _, key in ready), None)) is not None:
            ready.pop(bisect.bisect_left(ready, (-remaining[start], start)))
            capacity.acquire(start, demands[start])
            heapq.heappush(running, (now + demands[start].seconds, start))
        now, key = heapq.heappop(running)
        capacity.release(key)
        for child in children[key]:
            waits_for[child].discard(key)
            if not waits_for[child]:
                bisect.insort(ready, (-remaining[child], child))
    return now


@dataclass(frozen=True)
class StageTime:
    """The seconds that a stage takes in all, and those that are left, by its speed in this run."""

    total: float
    left: float = 0.0


@dataclass(frozen=True)
class TimeLeft:
    """The share of the work that is done, and the seconds by the clock that the rest takes.
    `seconds` is None where nothing is known of any unfinished stage. `unknown` counts the
    unfinished stages that neither number includes."""

    share: float
    seconds: float | None
    unknown: int


def time_left(
    stages: Sequence[Stage],
    forecasts: Mapping[str, float | None],
    measured: Mapping[str, StageTime],
    *,
    cached: Mapping[str, float],
    begun: Mapping[str, float],
    stopped: Collection[str],
    machines: Machines,
) -> TimeLeft:
    """Return the time that is left of `stages`, which come parents first; all else is by key.

    `forecasts` has seconds, or None; `measured` the stages that have run in this run, or have a
    speed; `cached` the seconds of those done before; `begun` for how many seconds stages without a
    speed have been running. Stages that are `stopped` won't finish: their work stays undone.
    """
    expected = {**expected_seconds(stages, forecasts, measured), **cached}
    left = {
        key: measured[key].left if key in measured else max(seconds - begun.get(key, 0.0), 0.0)
        for key, seconds in expected.items()
        if seconds is not None and key not in cached and key not in stopped
    }
    known = {key: seconds for key, seconds in expected.items() if seconds is not None}
    undone = sum(left.values()) + sum(known[key] for key in stopped if key in known)
    whole = sum(known.values())
    unknown = sum(value is None and key not in stopped for key, value in expected.items())
    nothing_known = unknown and not any(left.values())
    return TimeLeft(
        share=max(1 - undone / whole, 0.0) if whole else 0.0,
        seconds=None if nothing_known else wall_time(stages, left, machines).scheduled,
        unknown=unknown,
    )


def expected_seconds(
    stages: Sequence[Stage],
    forecasts: Mapping[str, float | None],
    measured: Mapping[str, StageTime],
) -> dict[str, float | None]:
    """The seconds of each stage in all: measured, else the corrected forecast.

    Forecasts are wrong by about the same factor for all stages of a kind: those that have run
    correct the others of their kind, and all together the kinds of which none has run. A stage
    without a forecast counts as the mean of the measured stages of its kind.
    """
    totals = defaultdict[str, list[float]](list)
    pairs = defaultdict[str, list[tuple[float, float]]](list)
    for stage in stages:
        if (time := measured.get(stage.key)) is not None:
            totals[stage.kind].append(time.total)
            if forecast := forecasts[stage.key]:
                pairs[stage.kind].append((time.total, forecast))
    of_all = _ratio([pair for of_kind in pairs.values() for pair in of_kind], 1.0)

    def seconds(stage: Stage) -> float | None:
        forecast, alike = forecasts[stage.key], totals[stage.kind]
        if stage.key in measured:
            return measured[stage.key].total
        if forecast is not None:
            return forecast * _ratio(pairs[stage.kind], of_all)
        return sum(alike) / len(alike) if alike else None

    return {stage.key: seconds(stage) for stage in stages}


def _ratio(pairs: Sequence[tuple[float, float]], default: float) -> float:
    """All measured over all forecast seconds of `pairs`."""
    return sum(m for m, _ in pairs) / sum(f for _, f in pairs) if pairs else default
