"""The numbers behind a verdict, in words."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from fope_lab.report.compare.claim_values import ContrastValues, SeriesValues
from fope_lab.stages.metric import Metric
from fope_lab.statistics.decision import decide
from fope_lab.statistics.intervals import estimate_mean
from fope_lab.statistics.t_test import ALPHA, SeedTest
from fope_lab.sweep.claims.statements.base import Statement


def format_p(p: float) -> str:
    """Format a p-value to two digits, as in p = 0.034."""
    return "p < 0.0001" if p < 0.0001 else f"p = {p:.2g}"


def nothing_in_common(contrast: ContrastValues) -> str:
    """Say that no seed has a value of every compared number."""
    names = list(dict.fromkeys(term.series.model for term in contrast.terms))
    both = "both " * (len(names) == 2)
    return f"no seed has {both}{' and '.join(names)}"


def exact_numbers(terms: Sequence[SeriesValues], metric: Metric) -> str:
    """The numbers themselves, where there are no seeds."""
    values = ((term.name, next(iter(term.values.values()))) for term in terms)
    return ", ".join(f"{name} {metric.format(value)}" for name, value in values)


def tested_numbers(
    contrasts: Sequence[ContrastValues], statement: Statement, test: SeedTest, metric: Metric
) -> str:
    """The means, and each contrast's mean with its interval and p-value."""
    means: dict[int, str] = {}
    for contrast in contrasts:
        for place, term in zip(contrast.contrast.weights, contrast.terms, strict=True):
            mean = statistics.fmean(term.values[seed] for seed in contrast.seeds)
            means.setdefault(place, f"{term.name} {metric.format(mean)}")
    by_sum: dict[str, list[ContrastValues]] = {}
    for contrast in contrasts:
        by_sum.setdefault(contrast.contrast.name, []).append(contrast)
    parts = [f"means {', '.join(means[place] for place in sorted(means))}"]
    for same in by_sum.values():
        outcome = decide([one.bound for one in same], test, two_sided=statement.two_sided)
        p = f", {format_p(outcome.p)}" if len(by_sum) > 1 and outcome is not None else ""
        words = _sum_in_words(same[0], statement, test, few=outcome is None)
        parts.append(f"{_label(same, several=len(by_sum) > 1)} {words}{p}")
    return "; ".join(parts)


def _label(same: Sequence[ContrastValues], *, several: bool) -> str:
    """What is summed, and the limits that it is compared with."""
    first = same[0]
    limits = " and ".join(_signed(one.contrast.null) for one in same if one.contrast.null)
    what = first.contrast.name
    if first.is_difference:
        what = f"difference {what}" if several else "difference"
    elif not first.contrast.name.startswith("slope"):
        what = f"mean of {what}"
    return f"{what} (limit{'s' * (len(same) > 1)} {limits})" if limits else what


def _sum_in_words(
    contrast: ContrastValues, statement: Statement, test: SeedTest, *, few: bool
) -> str:
    """The mean of a contrast over the seeds, with the interval that belongs to the test."""
    level = 1 - (ALPHA if statement.two_sided else 2 * ALPHA)
    estimate = estimate_mean(contrast.bound.differences)
    between = test.interval(estimate, level)
    words = "too large to compute with" if estimate.mean is None else _signed(estimate.mean)
    if estimate.n == 1:
        return f"{words}: one seed decides nothing"
    if between is None:
        return f"{words}, without an interval"
    if between[0] == between[1]:
        return f"{words} under each seed" + ": two equal differences decide nothing" * few
    return f"{words}, {level:.0%} interval {_signed(between[0])} to {_signed(between[1])}".replace(
        "%", " %"
    )


def test_in_words(
    contrasts: Sequence[ContrastValues], statement: Statement, test: SeedTest, n: int
) -> str:
    """The test that decides a claim, and how several contrasts are put together."""
    paired = "paired " if any(len(one.terms) > 1 for one in contrasts) else ""
    sides = "two-sided" if statement.two_sided else "one-sided"
    words = f"{paired}{test.words(n)}, {sides}, α = {ALPHA:g}"
    count = len(contrasts)
    if count == 1:
        return words
    parts = "pairs" if statement.two_sided else "bounds"
    part = parts.removesuffix("s")
    return (
        f"{words}; the claim holds if all {count} {parts} are significant (intersection–union), and"
        f" fails if a {part} is significant in the other direction at α / {count} (Bonferroni)"
    )


def _signed(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")
