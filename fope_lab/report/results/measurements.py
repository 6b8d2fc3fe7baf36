"""What a finished stage measured, from its result.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fope_lab.report.results.metric_names import metric_of
from fope_lab.report.results.old_results import lift_result
from fope_lab.stages.result import Measurement, MetricPoint, ResultRecord

if TYPE_CHECKING:
    from fope_lab.report.results.stage_results import StageResult
    from fope_lab.store import Row
    from fope_lab.sweep.graph import Stage


def read_record(stage: Stage, content: Mapping[str, Any], rows: Iterable[Row]) -> ResultRecord:
    """The result of a finished stage, from its result.json of either shape."""
    if "format" in content:
        return ResultRecord.parse(content)
    return lift_result(content, rows, lambda name: metric_of(stage, name))


def read_measurements(result: StageResult) -> dict[MetricPoint, Measurement]:
    """The measurements of a finished stage that belong to a metric, by the metric's name and x."""
    names = {measurement.name for measurement in result.record.metrics}
    known = {name for name in names if metric_of(result.stage, name) is not None}
    return {(m.name, m.x): m for m in result.record.metrics if m.name in known}
