"""A claim in a sweep that adds seeds until its claims are decided: its looks, and what it asks for.

A look is a test with the seeds 0 … n − 1 of all models that the claim compares, n = first,
first + 1, … The first look that decides is the verdict, whatever seeds the store has beyond it. So
the verdict depends on the values alone, and not on when a run was started or interrupted.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from itertools import count, takewhile

from fope_lab.report.compare.claim_case import Case, VerdictWord
from fope_lab.report.compare.claim_values import Results
from fope_lab.sweep.claims.contrast import Combination


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
    """The looks at a claim, from `first` seeds on, by the test of its `case`.

    The claim is decided at a p-value below α divided by `verdicts`, the number of verdicts that its
    file corrects for: Holm's correction decides whatever Bonferroni's does.
    """

    case: Case
    first: int
    verdicts: int = 1
    _words: dict[int, VerdictWord] = field(default_factory=dict)

    @property
    def combination(self) -> Combination:
        """What the claim compares, with the stages of all seeds."""
        return self.case.combination

    def seeds(self, results: Results) -> ClaimSeeds:
        """Look at the values that there are, until the claim is decided.

        A seed without a value, such as one whose stage failed, is asked for and none beyond it. No
        seed is added where a value can't be compared, since none would decide the claim.
        """
        if self.combination.is_exact:
            return ClaimSeeds(0, 0, 0)
        common = set.intersection(*(set(member) for member in self.combination.members))
        most = sum(1 for _ in takewhile(lambda seed: seed in common, count()))
        complete = sum(
            1 for _ in takewhile(lambda seed: self._is_complete(seed, results), range(most))
        )
        self._words = {n: word for n, word in self._words.items() if n <= complete}
        for n in range(self.first, complete + 1):
            if n not in self._words:
                self._words[n] = self._word(self.at(n, results))
            if self._words[n] != "undecided":
                return ClaimSeeds(n, n, n)
        looked = complete if complete >= self.first else 0
        if complete == most or (looked and self.at(looked, results).obstacle):
            return ClaimSeeds(looked, complete, complete)
        return ClaimSeeds(looked, max(complete + 1, self.first), most)

    def at(self, n: int, results: Results) -> Case:
        """The claim over the first `n` seeds alone, as far as they have values."""
        series = tuple(
            dataclasses.replace(
                one, stages={s: stage for s, stage in one.stages.items() if s is None or s < n}
            )
            for one in self.combination.series
        )
        combination = dataclasses.replace(self.combination, series=series)
        return dataclasses.replace(self.case, combination=combination, results=results)

    def _word(self, case: Case) -> VerdictWord:
        return case.word(None if case.p is None else min(1.0, self.verdicts * case.p))

    def _is_complete(self, seed: int, results: Results) -> bool:
        """Whether every compared number has a value under the seed."""
        return all(
            results[series.stages[seed].key].value_at(series.point) is not None
            for series in self.combination.series
        )
