"""What a result.json says that a stage measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fope_lab.stages.result import ResultRecord


def measured(result: Mapping[str, Any]) -> dict[tuple[str, int | None], float]:
    """The values by metric and x, of a result that has the shape of all results."""
    return {(metric.name, metric.x): metric.value for metric in ResultRecord.parse(result).metrics}
