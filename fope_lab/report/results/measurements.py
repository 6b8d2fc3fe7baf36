"""What a finished stage measured, from its rows and its result."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fope_lab.report.results.metrics import describe_metric, with_error
from fope_lab.report.results.stage_results import StageResult

MetricPoint = tuple[str, int | None]  # (metric, x)
Z_95 = statistics.NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Measurement:
    """A number, and how far the finite evaluation may have missed it, where that is known: its
    standard error, its 95 % interval."""

    value: float
    stderr: float | None = None
    ci95: tuple[float, float] | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval, of a normal distribution where only the standard error is known."""
        if self.ci95 is None and self.stderr is not None:
            return self.value - Z_95 * self.stderr, self.value + Z_95 * self.stderr
        return self.ci95


def read_measurements(reading: StageResult) -> dict[MetricPoint, Measurement]:
    """What a finished stage measured: its curves' points and its last single numbers."""
    if not reading.state.is_done:
        return {}
    logged = [(name, row.step, v) for row in reading.rows for name, v in row.values.items()]
    found: dict[MetricPoint, float] = {}
    errors: dict[MetricPoint, float] = {}
    for name, step, value in [*logged, *((n, None, v) for n, v in reading.recorded.items())]:
        of = with_error(name)
        metric = describe_metric(of or name)
        x = step if metric.x else None
        if metric.is_result and _is_number(value) and (step is not None or not metric.x):
            (errors if of else found)[of or name, x] = float(value)
    intervals = _intervals(reading.recorded, found)
    return {p: Measurement(v, errors.get(p), intervals.get(p)) for p, v in found.items()}


def _intervals(
    result: Mapping[str, Any], found: Iterable[MetricPoint]
) -> dict[MetricPoint, tuple[float, float]]:
    """The `ci95` that a result has by length: of the metric that an entry names, or else of the
    stage's only accuracy by length."""
    curves = {name for name, _ in found if describe_metric(name).x == "length"}
    accuracies = [name for name in curves if describe_metric(name).is_fraction]
    intervals: dict[MetricPoint, tuple[float, float]] = {}
    for entry in [e for entries in result.values() if isinstance(entries, list) for e in entries]:
        if isinstance(entry, Mapping) and {"length", "ci95"} <= entry.keys():
            metric = entry.get("metric") or (accuracies[0] if len(accuracies) == 1 else None)
            if metric in curves:
                low, high = entry["ci95"]
                intervals[metric, int(entry["length"])] = (float(low), float(high))
    return intervals


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
