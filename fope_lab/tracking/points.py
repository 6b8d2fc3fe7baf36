"""The metrics of a stage as MLflow stores them: the rows that it logs, then its result.

MLflow's lists and its compare page know the last value of a metric alone. So each point of a curve
over lengths is also a metric of its own: perplexity_by_length at 64 is perplexity/64, too.

MLflow stores an infinity as 1.8e308, which flattens every chart that shows it. So a value that is
not finite becomes NaN, a gap in the line, and the run's tag `non_finite` names the value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fope_lab.stages.metric import LENGTH, WORDS
from fope_lab.stages.result import DamagedResultError, ResultRecord
from fope_lab.store import Row
from fope_lab.tracking.stage_run import TAG_LENGTH, valid_name

LISTED_AXES = (LENGTH.name, WORDS.name)
"""The axes whose curves have few points; those over positions have too many for a list."""
PointId = tuple[str, int, int]
"""The name, step and timestamp of a point, which identify it within a run: the value follows."""
ERRORS = ("_stderr", "_ci95_low", "_ci95_high", "_n")
"""The ends of the names of metrics that say how sure another metric is, as in loss_stderr and in
perplexity_stderr/64."""


class Point(NamedTuple):
    """A point of a metric as MLflow stores it; `timestamp` is in ms since 1970."""

    name: str
    step: int
    timestamp: int
    value: float

    @property
    def id(self) -> PointId:
        return self.name, self.step, self.timestamp


def points(row: Row, curves: Mapping[str, str]) -> list[Point]:
    """The metrics of a row as points; a value that is not finite becomes NaN.

    `curves` has the axis of each metric that is a curve.
    """
    found = []
    for name, value in row.values.items():
        number = float(value) if math.isfinite(value) else math.nan
        found.append(Point(valid_name(name), row.step, row.timestamp, number))
        if (axis := curves.get(name)) in LISTED_AXES:
            listed = f"{name.removesuffix(f'_by_{axis}')}/{row.step}"
            found.append(Point(valid_name(listed), 0, row.timestamp, number))
    return found


def result_rows(content: Mapping[str, Any], rows: Sequence[Row], timestamp: int) -> list[Row]:
    """The numbers of a result.json that `rows` lack, as rows with the given timestamp in ms.

    These are 95 % intervals, NAME_ci95_low and NAME_ci95_high, and numbers that are known only at
    the end. The step is the x of a curve, else the last one that the rows have for the name, or 0.
    """
    try:
        measured = ResultRecord.parse(content).metrics
    except DamagedResultError:
        return []
    last_steps = {name: row.step for row in rows for name in row.values}
    present = {(name, row.step) for row in rows for name in row.values}
    by_step: dict[int, dict[str, float]] = {}
    for measurement in measured:
        step = measurement.x
        if step is None:
            step = last_steps.get(measurement.name, 0)
        columns = dict(measurement.row)
        if measurement.ci95 is not None:
            ends = (f"{measurement.name}_ci95_low", f"{measurement.name}_ci95_high")
            columns |= zip(ends, measurement.ci95, strict=True)
        for name, value in columns.items():
            if (name, step) not in present:
                by_step.setdefault(step, {})[name] = value
    return [Row(step, timestamp, values) for step, values in by_step.items()]


def measured_points(rows: Iterable[Row], curves: Mapping[str, str]) -> list[Point]:
    """What an evaluation says of its model: the last value of each metric but whole curves.

    A value that is not finite is left out, because MLflow stores NaN of a model as 0. The machine's
    load is left out, too.
    """
    last = {point.name: point for row in rows for point in points(row, curves)}
    whole = tuple(f"{curve}{end}" for curve in curves for end in ("", *ERRORS))
    return [
        point
        for name, point in last.items()
        if name not in whole and not name.startswith("system/") and math.isfinite(point.value)
    ]


def not_finite(rows: Iterable[Row]) -> str | None:
    """The values that are not finite, such as "perplexity_by_length=inf at 8192", or None."""
    found = [
        f"{name}={value} at {row.step}"
        for row in rows
        for name, value in row.values.items()
        if not math.isfinite(value)
    ]
    return ", ".join(found)[:TAG_LENGTH] or None
