"""What is in use of a cluster, and which stage may start next: the one scheduling policy.

The controller asks it of a real cluster, and a plan's forecast simulates it (schedule.py).

A stage counts with all its workers from the moment it starts. (Tune counts trials alone: the
workers of a trial have a placement group of their own, which is placed as a whole or not at all.)
The most urgent stage goes first. While it has no room, a less urgent stage may start before it if
the forecast of its time says that the urgent one need not wait for it. This is EASY backfilling:
Mu'alem & Feitelson, "Utilization, Predictability, Workloads, and User Runtime Estimates in
Scheduling the IBM SP2 with Backfilling" (2001).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from fope_lab.stages import Resources

Amounts = Mapping[str, float]
"""An amount of each of Ray's resources, by its name."""

TOLERANCE = 1e-6  # of sums of fractions

_Size = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Demand:
    """What all workers of a stage occupy together, and the forecast of its time in seconds."""

    amounts: Amounts
    seconds: float
    workers: int = 1


@dataclass(frozen=True)
class Lookahead:
    """How many stages may start before there is room for them, so that an autoscaler sees them.

    `groups` bounds how many of them have several workers: each has a process that waits for them.
    """

    stages: int = 0
    groups: int = 0


class Capacity:
    """The running stages, against what the cluster has."""

    def __init__(
        self,
        demands: Mapping[str, Demand],
        total: Callable[[], Amounts],
        lookahead: Lookahead = Lookahead(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`demands` are by the stages' keys, `total` returns what the cluster has now, and `clock`
        the time in seconds."""
        self._demands, self._total = demands, total
        self._lookahead, self._clock = lookahead, clock
        self._used: dict[str, float] = {}
        self._ends: dict[str, float] = {}
        # Many stages occupy the same: each size is compared with the room once for all of them.
        self._sizes = {key: tuple(sorted(d.amounts.items())) for key, d in demands.items()}
        self._different_sizes = set(self._sizes.values())

    def acquire(self, key: str) -> None:
        """Count a stage as started: it takes its amounts from what is free."""
        self._ends[key] = self._clock() + self._demands[key].seconds
        _add(self._used, self._demands[key].amounts, 1)

    def release(self, key: str) -> None:
        """Count a stage as ended: its amounts are free again."""
        del self._ends[key]
        _add(self._used, self._demands[key].amounts, -1)

    def admissible(self, ready: Iterable[str]) -> Iterator[str]:
        """Yield the stages of `ready`, most urgent first, any of which may start now.

        After the caller acquires a stage, the rest of the iteration is out of date.
        """
        free = dict(self._total())
        _add(free, self._used, -1)
        fitting = self._fitting(free)
        now = self._clock()
        reservation: _Reservation | None = None
        for key in ready:
            if reservation is not None:
                if self._sizes[key] in fitting and (
                    now + self._demands[key].seconds <= reservation.time
                    or self._sizes[key] in reservation.leaves_room_for
                ):
                    yield key
            elif self._sizes[key] in fitting or self._may_wait(self._demands[key]):
                yield key
            else:
                if not fitting:
                    return
                reservation = self._reserve(self._demands[key], free)

    def _fitting(self, free: Amounts) -> frozenset[_Size]:
        """The sizes of stages for which there is room."""
        return frozenset(size for size in self._different_sizes if _fits(size, free))

    def _may_wait(self, demand: Demand) -> bool:
        """Whether a stage may start although there is no room for it."""
        groups = sum(self._demands[key].workers > 1 for key in self._ends)
        if demand.workers > 1:
            return groups < self._lookahead.groups
        # Single stages would be placed before a group that waits for more room than they need.
        return not groups and len(self._ends) < self._lookahead.stages

    def _reserve(self, demand: Demand, free: Amounts) -> _Reservation:
        """When there will be room for a stage that has none now, and what will be left then."""
        spare = dict(free)
        for key in sorted(self._ends, key=self._ends.__getitem__):
            _add(spare, self._demands[key].amounts, 1)
            if _fits(demand.amounts.items(), spare):
                _add(spare, demand.amounts, -1)
                return _Reservation(self._ends[key], self._fitting(spare))
        return _Reservation(math.inf, self._fitting(spare))


@dataclass(frozen=True)
class _Reservation:
    """Room that is kept for an urgent stage: from `time` on, for all but `leaves_room_for`."""

    time: float
    leaves_room_for: frozenset[_Size]


def amounts(resources: Resources) -> dict[str, float]:
    """What all workers of a stage occupy, in Ray's names."""
    gpus = {"GPU": resources.gpus} if resources.gpus else {}
    return {"CPU": resources.cpus * resources.size, **gpus}


def _fits(wanted: Iterable[tuple[str, float]], there: Amounts) -> bool:
    return all(amount <= there.get(name, 0.0) + TOLERANCE for name, amount in wanted)


def _add(there: dict[str, float], amounts: Amounts, sign: int) -> None:
    for name, amount in amounts.items():
        there[name] = there.get(name, 0.0) + sign * amount
