"""How much of the cluster is handed out, and which stage may have what is left.

A stage counts with all its workers from the moment it is handed out. (Tune counts trials alone: the
workers of a trial have a placement group of their own, which is placed as a whole or not at all.)
The most urgent stage goes first. While it has no room, others may go before it if, by the estimates
of their time, it need not wait for them: what Mu'alem & Feitelson, "Utilization, Predictability,
Workloads, and User Runtime Estimates in Scheduling the IBM SP2 with Backfilling" (2001) call EASY.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from fope_lab.stages import Resources

Amounts = Mapping[str, float]
"""Of each of Ray's resources."""

TOLERANCE = 1e-6  # of sums of fractions


@dataclass(frozen=True)
class Demand:
    """What a stage occupies, all its workers together, and for how long by a rough estimate."""

    amounts: Amounts
    seconds: float
    workers: int = 1


@dataclass(frozen=True)
class Lookahead:
    """How much may be handed out that there is no room for yet, so that an autoscaler sees it."""

    stages: int = 0
    groups: int = 0
    """Of these, stages of several workers. Each has a process that waits for them."""


class Capacity:
    """The stages that are out, against what the cluster has."""

    def __init__(
        self,
        demands: Mapping[str, Demand],
        total: Callable[[], Amounts],
        lookahead: Lookahead = Lookahead(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`demands` are by the stages' keys, `total` says what the cluster has now."""
        self._demands, self._total = demands, total
        self._lookahead, self._clock = lookahead, clock
        self._ends: dict[str, float] = {}

    def hand_out(self, key: str) -> None:
        """Count a stage as started."""
        self._ends[key] = self._clock() + self._demands[key].seconds

    def give_back(self, key: str) -> None:
        """Count a stage as ended."""
        del self._ends[key]

    def may_go(self, ready: Iterable[str]) -> Iterable[str]:
        """Those of `ready`, most urgent first, any one of which may be handed out now."""
        free = dict(self._total())
        for key in self._ends:
            _add(free, self._demands[key].amounts, -1)
        first: _Reservation | None = None
        for key in ready:
            demand = self._demands[key]
            fits = _fits(demand.amounts, free)
            if first is not None:
                if fits and first.allows(demand, self._clock()):
                    yield key
            elif fits or self._may_wait(demand):
                yield key
            else:
                first = self._reservation(demand, free)

    def _may_wait(self, demand: Demand) -> bool:
        """Whether a stage may be handed out although there is no room for it."""
        groups = sum(self._demands[key].workers > 1 for key in self._ends)
        if demand.workers > 1:
            return groups < self._lookahead.groups
        # Single stages would be placed before a group that waits for more room than they need.
        return not groups and len(self._ends) < self._lookahead.stages

    def _reservation(self, demand: Demand, free: Amounts) -> _Reservation:
        """When there will be room for a stage that has none now, and what will be left then."""
        spare = dict(free)
        for key in sorted(self._ends, key=self._ends.__getitem__):
            _add(spare, self._demands[key].amounts, 1)
            if _fits(demand.amounts, spare):
                _add(spare, demand.amounts, -1)
                return _Reservation(self._ends[key], spare)
        return _Reservation(math.inf, spare)


@dataclass(frozen=True)
class _Reservation:
    time: float
    spare: Amounts

    def allows(self, demand: Demand, now: float) -> bool:
        """Whether a stage that starts now leaves the room that is reserved."""
        return now + demand.seconds <= self.time or _fits(demand.amounts, self.spare)


def amounts(resources: Resources) -> dict[str, float]:
    """What all workers of a stage occupy, in Ray's names."""
    gpus = {"GPU": resources.gpus} if resources.gpus else {}
    return {"CPU": resources.cpus * resources.size, **gpus}


def _fits(wanted: Amounts, there: Amounts) -> bool:
    return all(amount <= there.get(name, 0.0) + TOLERANCE for name, amount in wanted.items())


def _add(there: dict[str, float], amounts: Amounts, sign: int) -> None:
    for name, amount in amounts.items():
        there[name] = there.get(name, 0.0) + sign * amount
