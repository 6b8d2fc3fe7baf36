"""The measured numbers that a claim is about, by seed, and whether the models learned the task."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fope_lab.report.results.stage_results import StageResult
from fope_lab.stages.result import MetricPoint
from fope_lab.statistics.decision import Bound
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
    """The point that shows whether a model learned the task, and where it is in words: of the
    metric that the evaluation declares for this, or the curve's own longest within the training
    length.
    """
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
