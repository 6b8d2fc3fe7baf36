"""How long a graph of stages takes on given cores and GPUs, by the clock.

Two bounds that no order can beat: the longest chain of stages, and all work shared out evenly. And
a schedule that can be kept: the controller's own policy (capacity.py), simulated on the forecasts,
the longest remaining path first (Graham, "Bounds on Multiprocessing Timing Anomalies", 1969: with
equal processors at most twice the best order's time).
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fope_lab.planning.capacity import Capacity, Demand, amounts
from fope_lab.sweep.graph import Stage


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
    """The time of the stages whose keys are in `seconds`; `stages` has parents before children.

    Parents that are not in `seconds` are done. A stage that asks for more than there is gets all
    of it.
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
    """For each stage, its own seconds and those of the longest chain of stages after it.

    `stages` has parents before children; parents that are not among them do not count.
    """
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
    """The time at which the last stage ends, in seconds from the start."""
    now = 0.0
    capacity = Capacity(demands, lambda: total, clock=lambda: now)
    waits_for = {s.key: {p for p in s.parents.values() if p in demands} for s in stages}
    children: dict[str, list[str]] = {stage.key: [] for stage in stages}
    for key, parents in waits_for.items():
        for parent in parents:
            children[parent].append(key)
    ready = sorted((-remaining[key], key) for key, parents in waits_for.items() if not parents)
    running: list[tuple[float, str]] = []
    while running or ready:
        while (start := next(capacity.admissible(key for _, key in ready), None)) is not None:
            ready.pop(bisect.bisect_left(ready, (-remaining[start], start)))
            capacity.acquire(start)
            heapq.heappush(running, (now + demands[start].seconds, start))
        now, key = heapq.heappop(running)
        capacity.release(key)
        for child in children[key]:
            waits_for[child].discard(key)
            if not waits_for[child]:
                bisect.insort(ready, (-remaining[child], child))
    return now
