"""Stages to cells: the mean over seeds of each number that the sweep measured, and its interval.

A cell is one table entry: the stages that share their place in the sweep file and the values of all
axes, and differ by their seed. The interval is Student's t over the seeds: mean ± t(0.975, n − 1)
· s / √n, with s the sample standard deviation. It says how much the number moves with the seed; it
does not hold the sampling error of a finite evaluation, which stands beside each value where the
evaluation gave it. One seed has no interval. A value that is not finite leaves its cell without
mean and interval, and stays among the cell's values.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fope_lab.report.results.measurements import read_measurements
from fope_lab.report.results.metric_names import metric_of
from fope_lab.report.results.stage_results import StageResult
from fope_lab.stages.metric import Metric
from fope_lab.stages.result import Measurement, MetricPoint
from fope_lab.store import Status


@dataclass(frozen=True)
class MeanEstimate:
    """Mean and two-sided 95 % interval over n values; None where they don't exist."""

    n: int
    mean: float | None
    ci95: tuple[float, float] | None

    @property
    def half_width(self) -> float | None:
        """Half the interval's width, the number behind ±."""
        return None if self.ci95 is None else (self.ci95[1] - self.ci95[0]) / 2


@dataclass(frozen=True)
class SeedValue:
    """What one stage measured."""

    seed: int | None
    measured: Measurement
    key: str
    run_id: str | None
    link: str | None

    @property
    def value(self) -> float:
        """The number."""
        return self.measured.value

    def as_json(self) -> dict[str, Any]:
        """The value as `report --json` gives it; `stderr` and `ci95` are null where unknown."""
        ci95 = self.measured.ci95
        return {
            "seed": self.seed,
            "value": json_value(self.value),
            "stderr": json_value(self.measured.stderr),
            "ci95": None if ci95 is None else json_value(ci95),
            "key": self.key,
            "run_id": self.run_id,
        }


@dataclass(frozen=True)
class MissingSeed:
    """A stage that belongs to a cell and gave it no value, and why."""

    seed: int | None
    key: str
    name: str
    state: Status
    reason: str


@dataclass(frozen=True)
class Cell:
    """One table entry. `x` is the context length (or position, …) of a curve's point, None for a
    single number."""

    stage: str
    metric: Metric
    x: int | None
    axes: Mapping[str, Any]
    estimate: MeanEstimate
    values: tuple[SeedValue, ...]  # by seed
    missing: tuple[MissingSeed, ...]
    train_length: int | None
    embedding: str | None

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of its stages, those with a value first."""
        return (*(value.key for value in self.values), *(gap.key for gap in self.missing))

    @property
    def single(self) -> Measurement | None:
        """The only value, where there is one seed."""
        return self.values[0].measured if len(self.values) == 1 else None

    def as_json(self, paper: float | None = None) -> dict[str, Any]:
        """The cell as `report --json` gives it; `paper` is the published number, in our unit.

        `ci95` is [low, high], null for fewer than two values. A value that is not finite is the
        word NaN, Infinity or -Infinity, and then `mean` is null.
        """
        return {
            "stage": self.stage,
            "metric": self.metric.name,
            "x": self.x,
            "axes": json_value(self.axes),
            "n": self.estimate.n,
            "mean": self.estimate.mean,
            "ci95": None if self.estimate.ci95 is None else list(self.estimate.ci95),
            "values": [value.as_json() for value in self.values],
            "paper": paper,
        }


def estimate_mean(values: Sequence[float]) -> MeanEstimate:
    """Mean and Student's t interval of `values`; identical values have an interval of width 0.

    Exact sums, so that the order of the values never matters.
    """
    n = len(values)
    if n == 0 or not all(math.isfinite(value) for value in values):
        return MeanEstimate(n, None, None)
    mean = statistics.mean(map(float, values))
    if n == 1:
        return MeanEstimate(n, mean, None)
    # scipy.special loads in a tenth of the time of scipy.stats
    from scipy.special import stdtrit

    try:
        deviation = statistics.stdev(values)
    except OverflowError:  # of values that spread over the whole range of float64
        return MeanEstimate(n, mean, None)
    half = float(stdtrit(n - 1, 0.975)) * deviation / math.sqrt(n)
    low, high = mean - half, mean + half
    finite = math.isfinite(low) and math.isfinite(high)
    return MeanEstimate(n, mean, (low, high) if finite else None)


def build_cells(
    readings: Sequence[StageResult],
    run_ids: Mapping[str, str],
    links: Mapping[str, str],
) -> tuple[Cell, ...]:
    """All cells of a sweep in the order of its stages, those without any value included."""
    measured = {r.stage.key: read_measurements(r) for r in readings}
    known: dict[str, dict[MetricPoint, None]] = {}
    for reading in readings:
        known.setdefault(reading.stage.section, {}).update(
            dict.fromkeys(measured[reading.stage.key])
        )
    cells = []
    for group in group_seeds(readings):
        for name, x in _expected(group, measured, known[group[0].stage.section]):
            cells.append(_cell(group, measured, name, x, run_ids, links))
    return tuple(cells)


def group_seeds(readings: Iterable[StageResult]) -> list[list[StageResult]]:
    """Stages that differ by their seed only, sorted by it; no group holds a seed twice."""
    groups: dict[tuple[str, str, int], list[StageResult]] = {}
    seen: Counter[tuple[str, str, int | None]] = Counter()
    for reading in readings:
        place = (reading.stage.section, json.dumps(json_value(reading.stage.axes), sort_keys=True))
        occurrence = seen[(*place, reading.stage.seed)]
        seen[(*place, reading.stage.seed)] += 1
        groups.setdefault((*place, occurrence), []).append(reading)
    return [
        sorted(group, key=lambda r: (r.stage.seed is None, r.stage.seed or 0))
        for group in groups.values()
    ]


def json_value(value: Any) -> Any:
    """`value` with numbers that JSON can't hold as words, and mappings as plain dicts."""
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return value


def _expected(
    group: Sequence[StageResult],
    measured: Mapping[str, Mapping[MetricPoint, Measurement]],
    known: Iterable[MetricPoint],
) -> list[MetricPoint]:
    """The entries that a group has, or will have once it is done, as its siblings tell."""
    own = dict.fromkeys(place for r in group for place in measured[r.stage.key])
    if not own and any(not r.state.is_done for r in group):
        lengths = group[0].stage.config.get("lengths")
        own = dict.fromkeys(
            (name, x)
            for name, x in known
            if not lengths or x in lengths or _metric(group, name).x != "length"
        )
    return sorted(own, key=lambda place: (place[0], place[1] is not None, place[1] or 0))


def _metric(group: Sequence[StageResult], name: str) -> Metric:
    """The metric that stages which differ by their seed log under a name."""
    metric = metric_of(group[0].stage, name)
    assert metric is not None
    return metric


def _cell(
    group: Sequence[StageResult],
    measured: Mapping[str, Mapping[MetricPoint, Measurement]],
    name: str,
    x: int | None,
    run_ids: Mapping[str, str],
    links: Mapping[str, str],
) -> Cell:
    values, missing = [], []
    for reading in group:
        key = reading.stage.key
        value = measured[key].get((name, x))
        if value is not None:
            values.append(
                SeedValue(reading.stage.seed, value, key, run_ids.get(key), links.get(key))
            )
        else:
            reason = reading.state.reason or "is done, but has no such value"
            missing.append(
                MissingSeed(
                    reading.stage.seed, key, reading.stage.label, reading.state.status, reason
                )
            )
    first = group[0]
    return Cell(
        stage=first.stage.section,
        metric=_metric(group, name),
        x=x,
        axes=dict(first.stage.axes),
        estimate=estimate_mean([v.value for v in values]),
        values=tuple(values),
        missing=tuple(missing),
        train_length=first.train_length,
        embedding=first.stage.embedding,
    )
