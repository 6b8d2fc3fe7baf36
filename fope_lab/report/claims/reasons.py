"""The numbers behind a verdict, in words."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from fope_lab.report.claims.samples import MeasuredContrast, Results, Sample, distinct_samples
from fope_lab.stages.metric import Metric
from fope_lab.statistics.decision import decide
from fope_lab.statistics.intervals import estimate_mean
from fope_lab.statistics.t_test import ALPHA, SeedTest
from fope_lab.store import Status

Contrasts = Sequence[MeasuredContrast]


def format_p(p: float) -> str:
    """Format a p-value to two digits, as in p = 0.034."""
    return "p < 0.0001" if p < 0.0001 else f"p = {p:.2g}"


def obstacle(contrasts: Contrasts, metric: Metric) -> str:
    """Say why the values can't be compared; empty if they can."""
    odd: dict[str, None] = {}
    shares: dict[str, None] = {}
    for one in contrasts:
        for index, sample in zip(one.contrast.weights, one.samples, strict=True):
            for seed in one.seeds:
                value = sample.values[seed]
                words = f"{sample.name} is {metric.format(value)} under seed {seed}"
                if not math.isfinite(value):
                    odd[words] = None
                elif value <= 0 and index == one.contrast.positive:
                    shares[words] = None
    if odd:
        return f"{', '.join(odd)}: only finite values can be compared"
    if shares:
        return f"{', '.join(shares)}: a margin as a share needs positive numbers"
    fewest = min(contrasts, key=lambda one: len(one.seeds))
    if fewest.seeds:
        return ""
    names = list(dict.fromkeys(sample.number.model for sample in fewest.samples))
    return f"no seed has {'both ' * (len(names) == 2)}{' and '.join(names)}"


def gaps(contrasts: Contrasts, results: Results) -> str:
    """Name the stages without a value and their states; empty if all have one."""
    parts: dict[str, None] = {}
    for sample in distinct_samples(contrasts):
        stages = sample.number.stages
        missing: dict[Status, list[str]] = {}
        for seed, stage in stages.items():
            if seed not in sample.values:
                missing.setdefault(results[stage.key].state.status, []).append(str(seed))
        for status, seeds in missing.items():
            words = "done without this value" if status is Status.DONE else status
            which = f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}"
            which = "every seed" if len(seeds) == len(stages) else which
            under = "" if list(stages) == [None] else f" under {which}"
            parts[f"{sample.number.model}{under} ({words})"] = None
    return f"missing: {', '.join(parts)}" if parts else ""


def exact_numbers(samples: Sequence[Sample], metric: Metric) -> str:
    """Give the numbers themselves, where there are no seeds."""
    values = ((sample.name, next(iter(sample.values.values()))) for sample in samples)
    return ", ".join(f"{name} {metric.format(value)}" for name, value in values)


def tested_numbers(contrasts: Contrasts, test: SeedTest, metric: Metric, *, two_sided: bool) -> str:
    """Give the means, and each contrast's mean with its interval and p-value."""
    means: dict[int, str] = {}
    by_sum: dict[str, list[MeasuredContrast]] = {}
    for one in contrasts:
        for index, sample in zip(one.contrast.weights, one.samples, strict=True):
            mean = statistics.fmean(sample.values[seed] for seed in one.seeds)
            means.setdefault(index, f"{sample.name} {metric.format(mean)}")
        by_sum.setdefault(one.contrast.name, []).append(one)
    parts = [f"means {', '.join(means[index] for index in sorted(means))}"]
    several = len(by_sum) > 1
    for same in by_sum.values():
        outcome = decide([one.bound for one in same], test, two_sided=two_sided)
        p = f", {format_p(outcome.p)}" if several and outcome is not None else ""
        words = _sum_in_words(same[0], test, two_sided=two_sided, few=outcome is None)
        parts.append(f"{_label(same, several=several)} {words}{p}")
    return "; ".join(parts)


def _label(same: Contrasts, *, several: bool) -> str:
    first = same[0]
    limits = " and ".join(_signed(one.contrast.null) for one in same if one.contrast.null)
    what = first.contrast.name
    if first.is_difference:
        what = f"difference {what}" if several else "difference"
    elif not what.startswith("slope"):
        what = f"mean of {what}"
    return f"{what} (limit{'s' * (len(same) > 1)} {limits})" if limits else what


def _sum_in_words(one: MeasuredContrast, test: SeedTest, *, two_sided: bool, few: bool) -> str:
    level = 1 - (ALPHA if two_sided else 2 * ALPHA)
    estimate = estimate_mean(one.bound.differences)
    between = test.interval(estimate, level)
    words = "too large to compute with" if estimate.mean is None else _signed(estimate.mean)
    if estimate.n == 1:
        return f"{words}: one seed decides nothing"
    if between is None:
        return f"{words}, without an interval"
    low, high = between
    if low == high:
        return f"{words} under each seed" + ": two equal differences decide nothing" * few
    return f"{words}, {100 * level:.0f} % interval {_signed(low)} to {_signed(high)}"


def describe_test(contrasts: Contrasts, test: SeedTest, n: int, *, two_sided: bool) -> str:
    """Name the test that decides a claim, and how several contrasts are put together."""
    paired = "paired " if any(len(one.samples) > 1 for one in contrasts) else ""
    sides = "two-sided" if two_sided else "one-sided"
    words = f"{paired}{test.words(n)}, {sides}, α = {ALPHA:g}"
    count = len(contrasts)
    if count == 1:
        return words
    part = "pair" if two_sided else "bound"
    return (
        f"{words}; the claim holds if all {count} {part}s are significant (intersection–union), and"
        f" fails if a {part} is significant in the other direction at α / {count} (Bonferroni)"
    )


def _signed(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")
