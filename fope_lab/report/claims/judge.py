"""Verdicts on the claims of a sweep file, from a test over seeds for each combination of the axes.

A claim about a task that models may fail to learn is judged only if all compared models learned it
within their training length: it would compare guesses. A claim about numbers that no model makes,
such as those of a closed form, is decided exactly.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

from fope_lab.report.claims.samples import (
    MeasuredContrast,
    Results,
    describe_test,
    distinct_samples,
    exact_numbers,
    gaps,
    not_learned,
    obstacle,
    read_contrasts,
    tested_numbers,
)
from fope_lab.report.compare.comparability import differences
from fope_lab.report.results.summary import format_seconds
from fope_lab.statistics.decision import (
    ALPHA,
    FEWEST_KNOWN,
    MOST,
    STUDENT_T,
    Bound,
    Decision,
    Outcome,
    SeedTest,
    chance_rate,
    decide,
    holm,
    is_true,
    seeds_needed,
)
from fope_lab.sweep.claims.compare import Combination, Comparison, compare
from fope_lab.sweep.claims.grammar import parse_claim
from fope_lab.sweep.claims.lookup import Catalogue
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.report_section import ReportSection, Sentence, StatedClaim

VerdictWord = Decision | Literal["not trained"]
VERDICTS: tuple[VerdictWord, ...] = ("holds", "fails", "undecided", "not trained")
EXACT = "exact: no seeds"
StageSeconds = Callable[[Sequence[Stage]], float | None]
"""How long stages take in all, None if unknown."""


@dataclass(frozen=True)
class WouldDecide:
    """How many seeds would decide a claim, None for more than a thousand.

    `more` are those beyond the ones that are there, and `seconds` what their stages take.
    `at_least` says that a sequential test decides, which needs some more.
    """

    seeds: int | None
    more: int | None
    seconds: float | None
    at_least: bool = False

    @property
    def words(self) -> str:
        """One sentence without its full stop."""
        if self.seeds is None:
            return f"more than {MOST:,} seeds would be needed to decide it"
        cost = "" if self.seconds is None else f", about {format_seconds(self.seconds)} of work"
        number = f"{'at least' if self.at_least else 'about'} {self.seeds}"
        return (
            f"{number} seeds would decide it, if the difference is what it seems:"
            f" {self.more} more{cost}"
        )


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verdict on a claim for one combination of the axes that the claim leaves open.

    `n` is the number of seeds with a value of every compared number (of several differences, the
    fewest; 0 for what is exact). `p` is None if nothing was tested, `adjusted_p` without a
    correction for all verdicts of the file. `unequal` says what else the compared models differ in,
    `by_chance` at which rate chance decides if no difference existed, `looks` how often a
    sequential test has looked, and `added` which seeds the claim had added for it.
    """

    text: str
    axes: Mapping[str, Any]
    verdict: VerdictWord
    p: float | None
    n: int
    test: str
    reason: str
    unequal: tuple[str, ...] = ()
    adjusted_p: float | None = None
    would_decide: WouldDecide | None = None
    by_chance: float = 0.0
    looks: int | None = None
    added: tuple[int, ...] = ()
    basis: Sentence | None = None

    @property
    def is_exact(self) -> bool:
        """Whether there was nothing random to test."""
        return self.test == EXACT


@dataclass(frozen=True)
class Judgement:
    """A claim for one combination of its open axes, judged by the results of all stages. `minimum`
    is the accuracy from which on a task counts as learned."""

    stated: StatedClaim
    comparison: Comparison
    combination: Combination
    results: Results
    minimum: float
    test: SeedTest

    def over(self, counts: Callable[[Stage], bool]) -> Judgement:
        """Return the same over those of the compared stages that count."""
        numbers = tuple(
            replace(one, stages={seed: s for seed, s in one.stages.items() if counts(s)})
            for one in self.combination.numbers
        )
        return replace(self, combination=replace(self.combination, numbers=numbers))

    @functools.cached_property
    def contrasts(self) -> tuple[MeasuredContrast, ...]:
        """What is tested, with the values."""
        return read_contrasts(self.combination, self.results)

    @functools.cached_property
    def bounds(self) -> list[Bound]:
        """What the contrasts state, in numbers."""
        return [one.bound for one in self.contrasts]

    @property
    def two_sided(self) -> bool:
        """Whether the claim is tested against both sides."""
        return self.comparison.claim.statement.two_sided

    @functools.cached_property
    def obstacle(self) -> str:
        """Why the numbers can't be compared; empty if they can."""
        return obstacle(self.contrasts, self.comparison.measured.metric)

    @functools.cached_property
    def untrained(self) -> str:
        """Which models did not learn the task, and why; empty if all did, or none is needed."""
        return not_learned(self.contrasts, self.comparison.measured, self.results, self.minimum)

    @functools.cached_property
    def outcome(self) -> Outcome | None:
        """The p-values of the two verdicts; None if nothing is tested."""
        if self.obstacle or self.untrained or self.combination.is_exact:
            return None
        return decide(self.bounds, self.test, two_sided=self.two_sided)

    @property
    def p(self) -> float | None:
        """The p-value of the verdict that is nearer; None if nothing is tested."""
        return None if self.outcome is None else self.outcome.p

    def word(self, p: float | None) -> VerdictWord:
        """Return the verdict at a p-value, which may be adjusted for other claims."""
        if self.untrained:
            return "not trained"
        if self.combination.is_exact and not self.obstacle:
            are_true = all(is_true(one, closed=not self.two_sided) for one in self.bounds)
            return "holds" if are_true else "fails"
        return "undecided" if self.outcome is None or p is None else self.outcome.verdict(p)

    def verdict(
        self, adjusted: float | None, alpha: float, seconds: StageSeconds | None
    ) -> Verdict:
        """Return the verdict at the adjusted p-value, or at the claim's own; `alpha` is the level
        that this claim alone is tested at."""
        word = self.word(self.p if adjusted is None else adjusted)
        exact, two_sided = self.combination.is_exact, self.two_sided
        n = min(len(one.differences) for one in self.bounds)
        return Verdict(
            text=self.stated.text,
            basis=self.stated.basis,
            axes=self.combination.axes,
            verdict=word,
            p=self.p,
            n=0 if exact else n,
            test=EXACT
            if exact
            else describe_test(self.contrasts, self.test, n, two_sided=two_sided),
            reason="; ".join(filter(None, [self._why(), gaps(self.contrasts, self.results)])),
            unequal=self._unequal(),
            adjusted_p=adjusted,
            would_decide=self._would_decide(n, alpha, seconds) if word == "undecided" else None,
            by_chance=0.0
            if self.outcome is None
            else chance_rate(len(self.contrasts), two_sided=two_sided),
        )

    def _why(self) -> str:
        metric = self.comparison.measured.metric
        if self.untrained or self.obstacle:
            return self.untrained or self.obstacle
        if self.combination.is_exact:
            return exact_numbers(distinct_samples(self.contrasts), metric)
        return tested_numbers(self.contrasts, self.test, metric, two_sided=self.two_sided)

    def _unequal(self) -> tuple[str, ...]:
        """What the models of each pair differ in apart from their embedding."""
        found: dict[str, None] = {}
        names = (pairwise(sample.name for sample in one.samples) for one in self.contrasts)
        pairs = dict.fromkeys(pair for pairs in names for pair in pairs)
        stages = {one.name: one.number.stages for one in distinct_samples(self.contrasts)}
        for first, second in pairs:  # under the first seed in which they differ
            of = f"{first} and {second}: " if len(pairs) > 1 else ""
            common = stages[first].keys() & stages[second].keys()
            keys = ((stages[first][seed].key, stages[second][seed].key) for seed in common)
            words = next(filter(None, (differences(self.results, *both) for both in keys)), ())
            found |= dict.fromkeys(f"{of}{word}" for word in words)
        return tuple(found)

    def _would_decide(
        self, n: int, alpha: float, seconds: StageSeconds | None
    ) -> WouldDecide | None:
        if self.outcome is None or n < FEWEST_KNOWN:
            return None
        needed = seeds_needed(self.bounds, two_sided=self.two_sided, alpha=alpha)
        if needed is None:
            return WouldDecide(None, None, None)
        more = max(needed - n, 1)
        one = None if seconds is None else seconds(self._stages_of_a_seed())
        cost = None if one is None else one * more
        return WouldDecide(n + more, more, cost, at_least=self.test is not STUDENT_T)

    def _stages_of_a_seed(self) -> list[Stage]:
        """What one more seed needs: the compared stages and everything they are made from."""
        seed = self.contrasts[0].seeds[0]
        numbers = (sample.number.stages for sample in distinct_samples(self.contrasts))
        wanted = [stages[seed].key for stages in numbers if seed in stages]
        found: dict[str, Stage] = {}
        while wanted:
            key = wanted.pop()
            if key not in found and key in self.results:
                found[key] = self.results[key].stage
                wanted.extend(found[key].parents.values())
        return [stage for stage in found.values() if stage.seed == seed]


def read_judgements(
    section: ReportSection,
    by_section: Mapping[str, Sequence[Stage]],
    results: Results,
    test: SeedTest,
) -> list[Judgement]:
    """Return the claims of a checked sweep file, in its order, each for every combination."""
    catalogue = Catalogue(by_section)
    return [
        Judgement(stated, comparison, combination, results, section.min_in_length_accuracy, test)
        for stated in section.stated
        for comparison in [compare(parse_claim(stated.text), catalogue)]
        for combination in comparison.combinations
    ]


def judge(
    judgements: Sequence[Judgement], section: ReportSection, seconds: StageSeconds | None = None
) -> tuple[Verdict, ...]:
    """Return the verdicts on all claims of a file, with its correction for their number. `seconds`
    prices the seeds that would decide a claim."""
    if section.correction == "none":
        return tuple(one.verdict(None, ALPHA, seconds) for one in judgements)
    tested = [one for one in judgements if not one.combination.is_exact]
    adjusted = dict(zip(map(id, tested), holm([one.p for one in tested]), strict=True))
    alpha = ALPHA / max(len(tested), 1)
    return tuple(one.verdict(adjusted.get(id(one)), alpha, seconds) for one in judgements)
