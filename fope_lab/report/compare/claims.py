"""Verdicts on the claims of a sweep file, from a test over seeds for each combination of the axes.

A claim about a task that models may fail to learn is judged only if all compared models have
learned the task within their training length. Otherwise the claim would compare guesses.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from fope_lab.report.compare.decision import Bound, Decision, Outcome, decide
from fope_lab.report.compare.mastery import not_learned
from fope_lab.report.compare.seed_test import ALPHA, STUDENT_T, SeedTest, Side
from fope_lab.report.compare.training_history import differences
from fope_lab.report.results.aggregate import estimate_mean
from fope_lab.report.results.stage_results import StageResult
from fope_lab.stages.metric import Metric
from fope_lab.stages.result import MetricPoint
from fope_lab.store import Status
from fope_lab.sweep.claims.comparison import Combination, Comparison, Seeds, compare
from fope_lab.sweep.claims.grammar import Order, parse_claim
from fope_lab.sweep.claims.selection import Catalogue
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.report_section import ReportSection

Seed = int | None
VerdictWord = Decision | Literal["not trained"]
SIDES: Mapping[Order, Side] = {">": "greater", "<": "less"}
VERDICTS: tuple[VerdictWord, ...] = ("holds", "fails", "undecided", "not trained")


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim for one combination of the axes that the claim leaves open.

    `n` is the number of seeds with a value of every compared model; for a chain, that of the pair
    with the fewest. `p` is None if nothing was tested. `reason` gives the numbers, and `unequal`
    what else the compared models differ in. `looks` is how often a sequential test has looked, and
    `added` are the seeds that this claim had added for it.
    """

    text: str
    axes: Mapping[str, Any]
    verdict: VerdictWord
    p: float | None
    n: int
    test: str
    reason: str
    unequal: tuple[str, ...]
    looks: int | None = None
    added: tuple[int, ...] = ()


def judge_claims(
    section: ReportSection,
    by_section: Mapping[str, Sequence[Stage]],
    results: Iterable[StageResult],
    judge: Judge | None = None,
) -> tuple[Verdict, ...]:
    """Judge the claims of a checked sweep file, in its order.

    `by_section` holds the stages of each section, and `results` the results of all of them. `judge`
    decides each combination of a claim; the default is `judge_combination`.
    """
    catalogue = Catalogue(by_section)
    by_key = {result.stage.key: result for result in results}
    minimum = section.min_in_length_accuracy
    verdicts = []
    for text in section.claims:
        comparison = compare(parse_claim(text), catalogue)
        for combination in comparison.combinations:
            verdict = (judge or judge_combination)(text, comparison, combination, by_key, minimum)
            verdicts.append(verdict)
    return tuple(verdicts)


Results = Mapping[str, StageResult]
"""The results of all stages of the plan, by key."""
Judge = Callable[[str, Comparison, Combination, Results, float], Verdict]
"""Judges a claim, in the file's words, for one combination of axes; see `judge_combination`."""


@dataclass(frozen=True)
class _Term:
    """A compared model: its name in the claim, its stages, and their values at one point."""

    name: str
    stages: Seeds
    values: Mapping[Seed, float]  # of the seeds that have one

    @staticmethod
    def read(name: str, stages: Seeds, results: Results, point: MetricPoint) -> _Term:
        """The term with the values that its stages measured at a point."""
        read = {s: results[stage.key].measurements.get(point) for s, stage in stages.items()}
        return _Term(name, stages, {seed: m.value for seed, m in read.items() if m is not None})


@dataclass(frozen=True)
class _Pair:
    """Two neighbouring terms of a claim, over the seeds that have a value of both."""

    first: _Term
    second: _Term

    @property
    def terms(self) -> tuple[_Term, _Term]:
        return self.first, self.second

    @property
    def seeds(self) -> list[Seed]:
        return [seed for seed in self.first.values if seed in self.second.values]

    @property
    def differences(self) -> list[float]:
        """The difference under each seed, in the order of the seeds."""
        return [self.first.values[s] - self.second.values[s] for s in self.seeds]

    def bound(self, side: Side) -> Bound:
        """The statement that the first term is on one side of the second."""
        return Bound(self.differences, 0.0, side)


def judge_combination(
    text: str,
    comparison: Comparison,
    combination: Combination,
    results: Results,
    minimum: float,
    test: SeedTest = STUDENT_T,
) -> Verdict:
    """Judge a claim for one combination of the axes, by a test over all seeds that have values.

    `minimum` is the accuracy from which on a task counts as learned.
    """
    claim, selected = comparison.claim, comparison.selected
    point = selected.metric.name, claim.x
    terms = [
        _Term.read(name, seeds, results, point)
        for name, seeds in zip(comparison.names, combination.members, strict=True)
    ]
    pairs = [_Pair(first, second) for first, second in pairwise(terms)]
    n = min(len(pair.seeds) for pair in pairs)
    word, p, reason = _decide(pairs, selected.metric, SIDES[claim.order], test)
    trained = {term.name: {seed: term.stages[seed] for seed in term.values} for term in terms}
    if selected.mastery and (why := not_learned(trained, selected, results, minimum)):
        word, p, reason = "not trained", None, why
    return Verdict(
        text=text,
        axes=combination.axes,
        verdict=word,
        p=p,
        n=n,
        test=_test_in_words(test, n, len(pairs)),
        reason="; ".join([reason, *_gaps(terms, results)]),
        unequal=_unequal(pairs, results),
    )


def _decide(
    pairs: Sequence[_Pair], metric: Metric, side: Side, test: SeedTest
) -> tuple[VerdictWord, float | None, str]:
    """The verdict, the p-value and the reason that follow from the numbers."""
    if odd := _not_finite(pairs, metric):
        return "undecided", None, f"{odd}: only finite values can be compared"
    fewest = min(pairs, key=lambda pair: len(pair.seeds))
    if not fewest.seeds:
        return "undecided", None, f"no seed has both {fewest.first.name} and {fewest.second.name}"
    bounds = [pair.bound(side) for pair in pairs]
    numbers = _numbers(pairs, bounds, test, metric)
    outcome = decide(bounds, test, two_sided=True)
    if outcome is None:
        return "undecided", None, numbers
    return outcome.verdict(outcome.p), outcome.p, numbers


def _not_finite(pairs: Sequence[_Pair], metric: Metric) -> str:
    """The compared values that are not finite, in words."""
    found = {
        f"{term.name} is {metric.format(term.values[seed])} under seed {seed}": None
        for pair in pairs
        for term in pair.terms
        for seed in pair.seeds
        if not math.isfinite(term.values[seed])
    }
    return ", ".join(found)


def _numbers(
    pairs: Sequence[_Pair], bounds: Sequence[Bound], test: SeedTest, metric: Metric
) -> str:
    """The means, and each pair's mean difference with its interval and p-value."""
    means: dict[str, str] = {}
    for pair in pairs:
        for term in pair.terms:
            mean = statistics.fmean(term.values[seed] for seed in pair.seeds)
            means.setdefault(term.name, f"{term.name} {metric.format(mean)}")
    parts = [f"means {', '.join(means.values())}"]
    for pair, bound in zip(pairs, bounds, strict=True):
        outcome = decide([bound], test, two_sided=True)
        several = len(pairs) > 1
        of = f" {pair.first.name} − {pair.second.name}" if several else ""
        p = f", {format_p(outcome.p)}" if several and outcome is not None else ""
        parts.append(f"difference{of} {_difference(bound.differences, outcome)}{p}")
    return "; ".join(parts)


def _difference(differences: Sequence[float], outcome: Outcome | None) -> str:
    estimate = estimate_mean(differences)
    mean, ci95 = estimate.mean, estimate.ci95
    words = "too large to compute with" if mean is None else _signed(mean)
    if estimate.n == 1:
        return f"{words}: one seed decides nothing"
    if ci95 is None:
        return f"{words}, without an interval"
    if ci95[0] == ci95[1]:
        few = outcome is None
        return f"{words} under each seed" + ": two equal differences decide nothing" * few
    return f"{words}, 95 % interval {_signed(ci95[0])} to {_signed(ci95[1])}"


def format_p(p: float) -> str:
    """Format a p-value to two digits, as in p = 0.034."""
    return "p < 0.0001" if p < 0.0001 else f"p = {p:.2g}"


def _signed(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")


def _test_in_words(test: SeedTest, n: int, pairs: int) -> str:
    words = f"{test.words(n)}, two-sided, α = {ALPHA:g}"
    if pairs == 1:
        return words
    return (
        f"{words}; the claim holds if all {pairs} pairs are significant (intersection–union), and"
        f" fails if a pair is significant in the other direction at α / {pairs} (Bonferroni)"
    )


def _gaps(terms: Sequence[_Term], results: Results) -> list[str]:
    """The stages without a value and their states; empty if all have one."""
    parts = []
    for term in terms:
        gaps: dict[Status, list[str]] = {}
        for seed, stage in term.stages.items():
            if seed not in term.values:
                status = results[stage.key].state.status
                gaps.setdefault(status, []).append(str(seed))
        for status, seeds in gaps.items():
            words = "done without this value" if status is Status.DONE else status
            which = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}"
            which = "every seed" if len(seeds) == len(term.stages) else which
            parts.append(f"{term.name} under {which} ({words})")
    return [f"missing: {', '.join(parts)}"] if parts else []


def _unequal(pairs: Sequence[_Pair], results: Results) -> tuple[str, ...]:
    """What the models of each pair differ in apart from their embedding, under the first seed in
    which they differ."""
    found: dict[str, None] = {}
    for pair in pairs:
        of = f"{pair.first.name} and {pair.second.name}: " if len(pairs) > 1 else ""
        for seed in pair.first.stages.keys() & pair.second.stages.keys():
            keys = [term.stages[seed].key for term in pair.terms]
            if words := differences(results, *keys):
                found |= dict.fromkeys(f"{of}{word}" for word in words)
                break
    return tuple(found)
