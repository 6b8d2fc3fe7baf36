"""One claim for one combination of the axes that it leaves open: what was measured, and decided."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from fope_lab.report.compare.claim_reasons import (
    exact_numbers,
    nothing_in_common,
    test_in_words,
    tested_numbers,
)
from fope_lab.report.compare.claim_values import (
    ContrastValues,
    Results,
    distinct_series,
    gaps,
    models,
    read_contrasts,
    unusable,
)
from fope_lab.report.compare.mastery import not_learned
from fope_lab.report.compare.training_history import differences
from fope_lab.statistics.decision import Decision, Outcome, chance_rate, decide, is_true
from fope_lab.statistics.power import FEWEST_KNOWN, WouldDecide, seeds_needed
from fope_lab.statistics.t_test import STUDENT_T, SeedTest
from fope_lab.sweep.claim_group import StatedClaim
from fope_lab.sweep.claims.comparison import Comparison
from fope_lab.sweep.claims.contrast import Combination
from fope_lab.sweep.claims.statements.base import Statement
from fope_lab.sweep.graph import Stage

VerdictWord = Decision | Literal["not trained"]
EXACT = "exact: no seeds"
StageSeconds = Callable[[Sequence[Stage]], float | None]
"""How long stages take in all, None if unknown."""


@dataclass(frozen=True)
class Case:
    """A claim for one combination, with the results of all stages.

    `minimum` is the accuracy from which on a task counts as learned.
    """

    stated: StatedClaim
    comparison: Comparison
    combination: Combination
    results: Results
    minimum: float
    test: SeedTest

    @property
    def statement(self) -> Statement:
        """What the claim says of the numbers that it compares."""
        return self.comparison.claim.statement

    @functools.cached_property
    def contrasts(self) -> tuple[ContrastValues, ...]:
        """What is tested, with the values."""
        return read_contrasts(self.combination, self.results)

    @property
    def n(self) -> int:
        """The number of seeds of the contrast with the fewest; 0 without seeds."""
        return 0 if self.combination.is_exact else self._fewest

    @property
    def _fewest(self) -> int:
        return min(len(contrast.seeds) for contrast in self.contrasts)

    @functools.cached_property
    def obstacle(self) -> str:
        """Why the numbers can't be compared; empty if they can."""
        if odd := unusable(self.contrasts, self.comparison.selected.metric):
            return odd
        fewest = min(self.contrasts, key=lambda contrast: len(contrast.seeds))
        return "" if fewest.seeds else nothing_in_common(fewest)

    @functools.cached_property
    def untrained(self) -> str:
        """Which models did not learn the task, and why; empty if all did, or none is needed."""
        selected = self.comparison.selected
        if not selected.mastery:
            return ""
        return not_learned(models(self.contrasts), selected, self.results, self.minimum)

    @functools.cached_property
    def outcome(self) -> Outcome | None:
        """The p-values of the two verdicts; None if nothing is tested."""
        if self.obstacle or self.untrained or self.combination.is_exact:
            return None
        bounds = [contrast.bound for contrast in self.contrasts]
        return decide(bounds, self.test, two_sided=self.statement.two_sided)

    @property
    def p(self) -> float | None:
        """The p-value of the verdict that is nearer; None if nothing is tested."""
        return None if self.outcome is None else self.outcome.p

    def word(self, p: float | None) -> VerdictWord:
        """The verdict at a p-value, which may be adjusted for other claims."""
        if self.untrained:
            return "not trained"
        if self.combination.is_exact and not self.obstacle:
            closed = self.statement.closed
            true = all(is_true(one.bound, closed=closed) for one in self.contrasts)
            return "holds" if true else "fails"
        return "undecided" if self.outcome is None or p is None else self.outcome.verdict(p)

    @property
    def reason(self) -> str:
        """The numbers behind the verdict, and which are missing."""
        missing = gaps(self.contrasts, self.results)
        return "; ".join(filter(None, [self._why, missing]))

    @property
    def _why(self) -> str:
        metric = self.comparison.selected.metric
        if self.untrained:
            return self.untrained
        if self.obstacle:
            return self.obstacle
        if self.combination.is_exact:
            return exact_numbers(distinct_series(self.contrasts), metric)
        return tested_numbers(self.contrasts, self.statement, self.test, metric)

    @property
    def test_words(self) -> str:
        """The name of the test, with its number of seeds."""
        if self.combination.is_exact:
            return EXACT
        return test_in_words(self.contrasts, self.statement, self.test, self._fewest)

    @property
    def by_chance(self) -> float:
        """The rate at which the claim is decided by chance if no difference existed."""
        if self.outcome is None:
            return 0.0
        return chance_rate(len(self.contrasts), two_sided=self.statement.two_sided)

    @property
    def unequal(self) -> tuple[str, ...]:
        """What the models of each pair differ in apart from their embedding, under the first seed
        in which they differ."""
        found: dict[str, None] = {}
        pairs = dict.fromkeys(
            pair
            for contrast in self.contrasts
            for pair in pairwise(term.series.name for term in contrast.terms)
        )
        stages = {one.name: one.series.stages for one in distinct_series(self.contrasts)}
        for first, second in pairs:
            of = f"{first} and {second}: " if len(pairs) > 1 else ""
            for seed in stages[first].keys() & stages[second].keys():
                keys = stages[first][seed].key, stages[second][seed].key
                if words := differences(self.results, *keys):
                    found |= dict.fromkeys(f"{of}{word}" for word in words)
                    break
        return tuple(found)

    def would_decide(self, alpha: float, seconds: StageSeconds | None) -> WouldDecide | None:
        """How many seeds would decide the claim at a level, and what those to come take.

        None if nothing was tested, or if there are too few seeds to say.
        """
        n = self._fewest
        if self.outcome is None or n < FEWEST_KNOWN:
            return None
        bounds = [contrast.bound for contrast in self.contrasts]
        needed = seeds_needed(bounds, two_sided=self.statement.two_sided, alpha=alpha)
        if needed is None:
            return WouldDecide(None, None, None)
        more = max(needed - n, 1)
        one = None if seconds is None else seconds(list(self._stages_of_a_seed()))
        cost = None if one is None else one * more
        return WouldDecide(n + more, more, cost, at_least=self.test is not STUDENT_T)

    def _stages_of_a_seed(self) -> Iterator[Stage]:
        """The stages that one more seed needs, as those of the first seed: what is compared and
        whatever it is made from, but for what all seeds share."""
        seed = self.contrasts[0].seeds[0]
        wanted = [
            one.series.stages[seed].key
            for one in distinct_series(self.contrasts)
            if seed in one.series.stages
        ]
        seen: set[str] = set()
        while wanted:
            key = wanted.pop()
            if key in seen or key not in self.results:
                continue
            seen.add(key)
            stage = self.results[key].stage
            if stage.seed == seed:
                yield stage
            wanted.extend(stage.parents.values())
