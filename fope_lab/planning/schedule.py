"""How long a graph of stages takes on given processors and GPUs, by the clock.

Two bounds that no order can beat: the longest chain of stages, and all work shared out evenly. And
an order that can be kept: list scheduling as the controller does it, where whatever is ready and
has room starts, the longest remaining path first (Graham, "Bounds on Multiprocessing Timing
Anomalies", 1969: with equal processors at most twice the best order's time).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fope_lab.sweep.graph import Stage

TOLERANCE = 1e-9  # of sums of fractions


@dataclass(frozen=True)
class Machines:
    """What stages run on: how many cores and GPUs in all."""

    cpus: float
    gpus: float


@dataclass(frozen=True)
class WallTime:
    """Seconds by the clock: `bound` is the larger of the two bounds, `scheduled` what list
    scheduling takes."""

    longest_chain: float
    shared_work: float
    scheduled: float

    @property
    def bound(self) -> float:
        """No order takes less."""
        return max(self.longest_chain, self.shared_work)


def wall_time(
    stages: Sequence[Stage], seconds: Mapping[str, float], machines: Machines
) -> WallTime:
    """Of the stages that `seconds` names, by key; `stages` has parents before children.

    Parents that are not named are done. A stage that asks for more than there is gets all of it.
    """
    todo = [stage for stage in stages if stage.key in seconds]
    needs = {stage.key: _needs(stage, machines) for stage in todo}
    remaining = _remaining(todo, seconds)
    work = [sum(seconds[key] * need[i] for key, need in needs.items()) for i in (0, 1)]
    shares = [w / has for w, has in zip(work, (machines.cpus, machines.gpus), strict=True) if has]
    return WallTime(
        longest_chain=max(remaining.values(), default=0.0),
        shared_work=max(shares, default=0.0),
        scheduled=_scheduled(todo, seconds, needs, remaining, machines),
    )


def _needs(stage: Stage, machines: Machines) -> tuple[float, float]:
    resources = stage.spec.resources
    cpus = min(resources.cpus * resources.size, machines.cpus)
    return cpus, min(resources.gpus, machines.gpus)


def _remaining(stages: Sequence[Stage], seconds: Mapping[str, float]) -> dict[str, float]:
    """For each stage its own time and that of the longest chain of stages after it."""
    longest = {stage.key: 0.0 for stage in stages}
    for stage in reversed(stages):
        longest[stage.key] += seconds[stage.key]
        for parent in stage.parents.values():
            if parent in longest:
                longest[parent] = max(longest[parent], longest[stage.key])
    return longest


def _scheduled(
    stages: Sequence[Stage],
    seconds: Mapping[str, float],
    needs: Mapping[str, tuple[float, float]],
    remaining: Mapping[str, float],
    machines: Machines,
) -> float:
    """When the last stage ends. What is ready waits in a heap for each size of what it needs, so
    that only the first of each is looked at."""
    waits_for = {s.key: {p for p in s.parents.values() if p in needs} for s in stages}
    children: dict[str, list[str]] = {stage.key: [] for stage in stages}
    for key, parents in waits_for.items():
        for parent in parents:
            children[parent].append(key)
    ready: dict[tuple[float, float], list[tuple[float, str]]] = {}

    def release(key: str) -> None:
        heapq.heappush(ready.setdefault(needs[key], []), (-remaining[key], key))

    for key, parents in waits_for.items():
        if not parents:
            release(key)
    cpus, gpus, now = machines.cpus, machines.gpus, 0.0
    running: list[tuple[float, str]] = []
    while running or any(ready.values()):
        while fitting := [
            (heap[0], need)
            for need, heap in ready.items()
            if heap and need[0] <= cpus + TOLERANCE and need[1] <= gpus + TOLERANCE
        ]:
            (_, key), need = min(fitting)
            heapq.heappop(ready[need])
            cpus, gpus = cpus - need[0], gpus - need[1]
            heapq.heappush(running, (now + seconds[key], key))
        now, key = heapq.heappop(running)
        cpus, gpus = cpus + needs[key][0], gpus + needs[key][1]
        for child in children[key]:
            waits_for[child].discard(key)
            if not waits_for[child]:
                release(child)
    return now
