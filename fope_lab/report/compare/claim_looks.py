"""A claim in a sweep that adds seeds until its claims are decided: its looks, and what it asks for.

A look is a test with the seeds 0 … n − 1 of all models that the claim compares, n = first,
first + 1, … The first look that decides is the verdict, whatever seeds the store has beyond it. So
the verdict depends on the values alone, and not on when a run was started or interrupted.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from itertools import chain, count, takewhile

from fope_lab.report.compare.claims import Results, Verdict, judge_combination
from fope_lab.report.compare.sequential import SequentialT
from fope_lab.sweep.claims.comparison import Combination, Comparison, Seeds


@dataclass(frozen=True)
class ClaimSeeds:
    """The seeds 0 … `asked` − 1 that a claim asks for, after a look at `looked` seeds.

    `looked` is 0 before the first look. The claim may ask for more, up to `may_ask`: not once it is
    decided, or all its seeds are done.
    """

    looked: int
    asked: int
    may_ask: int


@dataclass
class ClaimLooks:
    """The looks at one combination of a claim; `minimum` is as in `judge_combination`."""

    text: str
    comparison: Comparison
    combination: Combination
    minimum: float
    first: int
    _verdicts: dict[int, Verdict] = field(default_factory=dict)

    def seeds(self, results: Results) -> ClaimSeeds:
        """Look at the values that there are, until the claim is decided.

        A seed without a value, such as one whose stage failed, is asked for and none beyond it. No
        seed is added where a value is not finite, since none would decide the claim.
        """
        common = set.intersection(*(set(member) for member in self.combination.members))
        most = sum(1 for _ in takewhile(lambda seed: seed in common, count()))
        values = list(takewhile(lambda v: v, (self._values(n, results) for n in range(most))))
        complete = len(values)
        self._verdicts = {n: v for n, v in self._verdicts.items() if n <= complete}
        for n in range(self.first, complete + 1):
            if self._look(n, results).verdict != "undecided":
                return ClaimSeeds(n, n, n)
        looked = complete if complete >= self.first else 0
        if complete == most or not all(map(math.isfinite, chain(*values))):
            return ClaimSeeds(looked, complete, complete)
        return ClaimSeeds(looked, max(complete + 1, self.first), most)

    def verdict(self, results: Results) -> Verdict:
        """The verdict of the look that decided, or else of the last one."""
        seeds = self.seeds(results)
        if not seeds.looked:
            return dataclasses.replace(self._judge(self.first, results), looks=0)
        return dataclasses.replace(
            self._look(seeds.looked, results),
            looks=seeds.looked - self.first + 1,
            added=tuple(range(self.first, seeds.asked)),
        )

    def _values(self, seed: int, results: Results) -> list[float]:
        """What each compared model measured under a seed; empty if one has no value yet."""
        point = self.comparison.selected.metric.name, self.comparison.claim.x
        found = []
        for member in self.combination.members:
            measurement = results[member[seed].key].measurements.get(point)
            if measurement is None:
                return []
            found.append(measurement.value)
        return found

    def _look(self, n: int, results: Results) -> Verdict:
        if n not in self._verdicts:
            self._verdicts[n] = self._judge(n, results)
        return self._verdicts[n]

    def _judge(self, n: int, results: Results) -> Verdict:
        """The verdict over the first `n` seeds, as far as they have values."""
        members: tuple[Seeds, ...] = tuple(
            {seed: stage for seed, stage in member.items() if seed is not None and seed < n}
            for member in self.combination.members
        )
        combination = dataclasses.replace(self.combination, members=members)
        test = SequentialT(self.first)
        return judge_combination(
            self.text, self.comparison, combination, results, self.minimum, test
        )
