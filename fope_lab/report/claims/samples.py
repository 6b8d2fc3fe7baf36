"""The measured numbers that a claim is about, by seed, and whether the models learned the task."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fope_lab.report.results.cells import StageResult
from fope_lab.stages.metric import Metric, MetricPoint
from fope_lab.statistics.decision import ALPHA, Bound, SeedTest, decide
from fope_lab.statistics.intervals import estimate_mean
from fope_lab.store.state import Status
from fope_lab.sweep.claims.compare import Combination, Contrast, Number
from fope_lab.sweep.claims.lookup import Measured

Seed = int | None
Results = Mapping[str, StageResult]
"""The results of all stages of the plan, by key."""


@dataclass(frozen=True)
class Sample:
    """A number with the values that its stages measured, of the seeds that have one."""

    number: Number
    values: Mapping[Seed, float]

    @property
    def name(self) -> str:
        """The name of the number in the claim."""
        return self.number.name


@dataclass(frozen=True)
class MeasuredContrast:
    """A contrast with the samples that it sums, in the order of its weights."""

    contrast: Contrast
    samples: tuple[Sample, ...]

    @property
    def seeds(self) -> list[Seed]:
        """The seeds with a value in every sample, in their order."""
        first, *others = self.samples
        return [seed for seed in first.values if all(seed in other.values for other in others)]

    @property
    def bound(self) -> Bound:
        """What the contrast states, with its sum under each seed."""
        pairs = [*zip(self.contrast.weights.values(), self.samples, strict=True)]
        parts = [[weight * sample.values[s] for weight, sample in pairs] for s in self.seeds]
        return Bound([*map(_sum, parts)], self.contrast.null, self.contrast.side)

    @property
    def is_difference(self) -> bool:
        """Whether this is one number less another, without a margin as a share."""
        return [*self.contrast.weights.values()] == [1.0, -1.0]


def _sum(parts: Sequence[float]) -> float:
    """Exact for more than two parts, and a plain difference for two."""
    if len(parts) <= 2:
        return sum(parts)
    return math.fsum(parts) if all(map(math.isfinite, parts)) else math.nan


def read_contrasts(combination: Combination, results: Results) -> tuple[MeasuredContrast, ...]:
    """Return the contrasts of a combination with what was measured."""
    samples = []
    for number in combination.numbers:
        keys = ((seed, stage.key) for seed, stage in number.stages.items())
        found = {seed: results[key].value_at(number.point) for seed, key in keys}
        values = {seed: value for seed, value in found.items() if value is not None}
        samples.append(Sample(number, values))
    return tuple(
        MeasuredContrast(one, tuple(samples[i] for i in one.weights))
        for one in combination.contrasts
    )


def distinct_samples(contrasts: Sequence[MeasuredContrast]) -> list[Sample]:
    """Return every sample of some contrasts, once, in their order."""
    return list({one.name: one for contrast in contrasts for one in contrast.samples}.values())


def not_learned(
    contrasts: Sequence[MeasuredContrast], measured: Measured, results: Results, minimum: float
) -> str:
    """Say which of the compared models did not learn the task, and why; empty if all did.

    A model has if every seed reaches the `minimum` within the training length. Models without a
    value, and metrics without `mastery`, are left out.
    """
    if measured.mastery is None:
        return ""
    models: dict[str, dict[Seed, StageResult]] = {}
    for sample in distinct_samples(contrasts):
        found = {seed: results[sample.number.stages[seed].key] for seed in sample.values}
        models.setdefault(sample.number.model, {}).update(found)
    reasons = []
    for name, by_seed in models.items():
        inside, where = _inside(by_seed, measured)
        poor = {seed: value for seed, value in inside.items() if not value >= minimum}
        if by_seed and not inside:
            reasons.append(f"{name}: {where}")
        elif poor:
            # If some seeds never learned the task, the mean says little about the others.
            seed = min(poor, key=lambda seed: poor[seed])
            value = f"{poor[seed]:.3f}" + (f" under seed {seed}" if len(inside) > 1 else "")
            reasons.append(f"{name} has {value} {where}, below the minimum of {minimum:g}")
    return "; ".join(reasons)


def _inside(
    results: Mapping[Seed, StageResult], measured: Measured
) -> tuple[dict[Seed, float], str]:
    """Each seed's accuracy within the training length, and where; or none, and the reason."""
    inside, where = {}, ""
    for seed, result in results.items():
        point, where = _point_inside(result, measured)
        if point is None or point not in result.measurements:
            return {}, where
        inside[seed] = result.measurements[point].value
    return inside, where


def _point_inside(result: StageResult, measured: Measured) -> tuple[MetricPoint | None, str]:
    """Where a result shows whether the model learned the task, also in words."""
    metric, mastery, length = measured.metric, measured.mastery, result.trained_length
    assert mastery is not None
    if mastery != metric:
        return (mastery.name, None), f"as {mastery.label} within the training length"
    if length is None:
        return None, "the training length is unknown"
    xs = [x for name, x in result.measurements if name == metric.name and x is not None]
    short = [x for x in xs if x <= length]
    if not short:
        return None, f"nothing was measured within the training length {length}"
    return (metric.name, max(short)), f"at {max(short)}, within the training length {length}"


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
