"""Aggregate what stages measured over their seeds.

A cell is one entry of a table: the stages of one section of the sweep file that have the same value
on every axis and differ only in their seed. Its interval is Student's t interval over the seeds,
mean ± t(0.975, n − 1) · s / √n, where s is the sample standard deviation. The interval covers the
variation between seeds. It does not cover the sampling error of a finite evaluation, which each
value carries if the evaluation gave it. A single seed has no interval. If a value is not finite,
the cell has no mean and no interval, and keeps all its values.
"""

from __future__ import annotations

import functools
import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fope_lab.report.results.stage_results import StageResult, group_by_section, metric_of
from fope_lab.stages.metric import Metric
from fope_lab.stages.result import Measurement, MetricPoint
from fope_lab.store import Status

CellKey = tuple[str, str, int | None]
"""The key of a cell's series, the name of its metric, and the point on its curve."""


@dataclass(frozen=True)
class MeanEstimate:
    """The mean of n values and its two-sided 95 % interval; None where there is none."""

    n: int
    mean: float | None
    ci95: tuple[float, float] | None

    @property
    def half_width(self) -> float | None:
        """Half of the interval's width, the number after ±."""
        return None if self.ci95 is None else (self.ci95[1] - self.ci95[0]) / 2

    @property
    def standard_error(self) -> float | None:
        """The standard error of the mean, s / √n; None without an interval."""
        return None if self.half_width is None else self.half_width / _t_quantile(self.n)


@dataclass(frozen=True)
class SeedValue:
    """What the stage with `key` measured under one seed."""

    seed: int | None
    measurement: Measurement
    key: str

    @property
    def value(self) -> float:
        """The number that the stage measured."""
        return self.measurement.value


@dataclass(frozen=True)
class MissingSeed:
    """A stage of a cell that has no value, and the reason."""

    seed: int | None
    key: str
    status: Status
    reason: str


@dataclass(frozen=True)
class Cell:
    """One entry of a table, over all seeds.

    `x` is the point on a curve, such as the context length; None for a single number.
    """

    section: str
    metric: Metric
    x: int | None
    axes: Mapping[str, Any]
    estimate: MeanEstimate
    values: tuple[SeedValue, ...]  # in the order of the seeds
    missing: tuple[MissingSeed, ...]
    trained_length: int | None
    embedding: str | None

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of its stages; those with a value come first."""
        return (*(value.key for value in self.values), *(gap.key for gap in self.missing))

    @property
    def series(self) -> str:
        """The key that all cells of the same stages share."""
        return min(self.keys)

    @property
    def key(self) -> CellKey:
        """The identity of the cell within a report."""
        return self.series, self.metric.name, self.x

    @property
    def single(self) -> Measurement | None:
        """The only value, if there is exactly one."""
        return self.values[0].measurement if len(self.values) == 1 else None


def estimate_mean(values: Sequence[float]) -> MeanEstimate:
    """Estimate the mean of `values` and its Student's t interval.

    Equal values have an interval of width 0. Sums are exact, so the order never matters.
    """
    n = len(values)
    if n == 0 or not all(math.isfinite(value) for value in values):
        return MeanEstimate(n, None, None)
    mean = statistics.mean(map(float, values))
    if n == 1:
        return MeanEstimate(n, mean, None)
    try:
        deviation = statistics.stdev(values)
    except OverflowError:  # the values spread over the whole range of float64
        return MeanEstimate(n, mean, None)
    half = _t_quantile(n) * deviation / math.sqrt(n)
    low, high = mean - half, mean + half
    finite = math.isfinite(low) and math.isfinite(high)
    return MeanEstimate(n, mean, (low, high) if finite else None)


def interval(estimate: MeanEstimate, level: float) -> tuple[float, float] | None:
    """Student's two-sided interval of another level than 95 %; None if there is none."""
    if level == 0.95:
        return estimate.ci95
    if estimate.mean is None or estimate.standard_error is None:
        return None
    half = _t_quantile(estimate.n, level) * estimate.standard_error
    return estimate.mean - half, estimate.mean + half


@functools.cache
def _t_quantile(n: int, level: float = 0.95) -> float:
    """Student's t for the two-sided interval of the mean of `n` values."""
    # scipy.special loads ten times faster than scipy.stats.
    from scipy.special import stdtrit

    return float(stdtrit(n - 1, 0.5 + level / 2))


def build_cells(results: Sequence[StageResult]) -> tuple[Cell, ...]:
    """Build all cells in the order of the stages, including those without any value."""
    known = {
        section: dict.fromkeys(point for r in members for point in r.measurements)
        for section, members in group_by_section(results).items()
    }
    return tuple(
        _cell(seeds, point)
        for seeds in group_seeds(results)
        for point in _expected(seeds, known[seeds[0].stage.section])
    )


def group_seeds(results: Iterable[StageResult]) -> list[list[StageResult]]:
    """Group the stages that differ only in their seed, each group sorted by seed.

    No group holds a seed twice.
    """
    groups: dict[tuple[str, str, int], list[StageResult]] = {}
    seen: Counter[tuple[str, str, int | None]] = Counter()
    for result in results:
        stage = result.stage
        place = (stage.section, json.dumps(json_value(stage.axes), sort_keys=True))
        occurrence = seen[(*place, stage.seed)]
        seen[(*place, stage.seed)] += 1
        groups.setdefault((*place, occurrence), []).append(result)
    return [
        sorted(group, key=lambda r: (r.stage.seed is None, r.stage.seed or 0))
        for group in groups.values()
    ]


def json_value(value: Any) -> Any:
    """Convert a value to JSON: mappings to dicts, and numbers that JSON can't hold to words."""
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return value


def _expected(seeds: Sequence[StageResult], known: Iterable[MetricPoint]) -> list[MetricPoint]:
    """The points that the stages measured, or that they declare and their siblings measured."""
    own = dict.fromkeys(point for result in seeds for point in result.measurements)
    if not own and not all(result.state.is_done for result in seeds):
        declared = {metric.name: metric.xs for metric in seeds[0].stage.spec.metrics()}
        own = dict.fromkeys(
            (name, x) for name, x in known if name in declared and x in (declared[name] or (None,))
        )
    return sorted(own, key=lambda point: (point[0], point[1] is not None, point[1] or 0))


def _metric(result: StageResult, name: str) -> Metric:
    metric = metric_of(result.stage, name)
    assert metric is not None  # StageResult.measurements leaves out the others
    return metric


def _cell(seeds: Sequence[StageResult], point: MetricPoint) -> Cell:
    values, missing = [], []
    for result in seeds:
        stage = result.stage
        measurement = result.measurements.get(point)
        if measurement is not None:
            values.append(SeedValue(stage.seed, measurement, stage.key))
        else:
            reason = result.state.reason or "is done, but has no such value"
            missing.append(MissingSeed(stage.seed, stage.key, result.state.status, reason))
    first = seeds[0]
    return Cell(
        section=first.stage.section,
        metric=_metric(first, point[0]),
        x=point[1],
        axes=dict(first.stage.axes),
        estimate=estimate_mean([value.value for value in values]),
        values=tuple(values),
        missing=tuple(missing),
        trained_length=first.trained_length,
        embedding=first.stage.embedding,
    )
