"""The measured numbers that a claim is about, by series and seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fope_lab.report.results.stage_results import StageResult
from fope_lab.stages.metric import Metric
from fope_lab.statistics.decision import Bound
from fope_lab.store import Status
from fope_lab.sweep.claims.contrast import Combination, Contrast, Seeds, Series

Seed = int | None
Results = Mapping[str, StageResult]
"""The results of all stages of the plan, by key."""


@dataclass(frozen=True)
class SeriesValues:
    """A series with the values that its stages measured, by seed."""

    series: Series
    values: Mapping[Seed, float]  # of the seeds that have one

    @property
    def name(self) -> str:
        """The name of the series in the claim."""
        return self.series.name


@dataclass(frozen=True)
class ContrastValues:
    """A contrast with the series that it sums, over the seeds that have a value of each."""

    contrast: Contrast
    terms: tuple[SeriesValues, ...]
    weights: tuple[float, ...]

    @property
    def seeds(self) -> list[Seed]:
        """The seeds with a value of every series, in their order."""
        first, *others = self.terms
        return [seed for seed in first.values if all(seed in other.values for other in others)]

    @property
    def bound(self) -> Bound:
        """What the contrast states, with its sum under each seed."""
        pairs = list(zip(self.weights, self.terms, strict=True))
        sums = [_sum([weight * term.values[s] for weight, term in pairs]) for s in self.seeds]
        return Bound(sums, self.contrast.null, self.contrast.side)

    @property
    def is_difference(self) -> bool:
        """Whether this is one number less another, without a margin as a share."""
        return self.weights == (1.0, -1.0)


def read_contrasts(combination: Combination, results: Results) -> tuple[ContrastValues, ...]:
    """The contrasts of a claim with what was measured."""
    read = [_read(series, results) for series in combination.series]
    return tuple(
        ContrastValues(one, tuple(read[i] for i in one.weights), tuple(one.weights.values()))
        for one in combination.contrasts
    )


def _read(series: Series, results: Results) -> SeriesValues:
    found = {s: results[stage.key].value_at(series.point) for s, stage in series.stages.items()}
    return SeriesValues(series, {s: value for s, value in found.items() if value is not None})


def _sum(parts: Sequence[float]) -> float:
    """The sum of parts; exact for more than two, and a plain difference for two."""
    if len(parts) <= 2:
        return sum(parts)
    return math.fsum(parts) if all(map(math.isfinite, parts)) else math.nan


def distinct_series(contrasts: Sequence[ContrastValues]) -> list[SeriesValues]:
    """Every series of some contrasts, once, in their order."""
    found = {term.name: term for contrast in contrasts for term in contrast.terms}
    return list(found.values())


def models(contrasts: Sequence[ContrastValues]) -> dict[str, Seeds]:
    """The stages with a value of each model, by its name."""
    found: dict[str, Seeds] = {}
    for term in distinct_series(contrasts):
        having = {seed: term.series.stages[seed] for seed in term.values}
        found[term.series.model] = {**found.get(term.series.model, {}), **having}
    return found


def unusable(contrasts: Sequence[ContrastValues], metric: Metric) -> str:
    """Why the values can't be compared, in words; empty if they can."""
    odd: dict[str, None] = {}
    shares: dict[str, None] = {}
    for contrast in contrasts:
        for index, term in zip(contrast.contrast.weights, contrast.terms, strict=True):
            for seed in contrast.seeds:
                value = term.values[seed]
                words = f"{term.name} is {metric.format(value)} under seed {seed}"
                if not math.isfinite(value):
                    odd[words] = None
                elif value <= 0 and index == contrast.contrast.positive:
                    shares[words] = None
    if odd:
        return f"{', '.join(odd)}: only finite values can be compared"
    if shares:
        return f"{', '.join(shares)}: a margin as a share needs positive numbers"
    return ""


def gaps(contrasts: Sequence[ContrastValues], results: Results) -> str:
    """The stages without a value and their states, in words; empty if all have one."""
    parts: dict[str, None] = {}
    for term in distinct_series(contrasts):
        stages = term.series.stages
        missing: dict[Status, list[str]] = {}
        for seed, stage in stages.items():
            if seed not in term.values:
                status = results[stage.key].state.status
                missing.setdefault(status, []).append(str(seed))
        for status, seeds in missing.items():
            words = "done without this value" if status is Status.DONE else status
            which = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}"
            which = "every seed" if len(seeds) == len(stages) else which
            under = "" if list(stages) == [None] else f" under {which}"
            parts[f"{term.series.model}{under} ({words})"] = None
    return f"missing: {', '.join(parts)}" if parts else ""
