"""What a training says of itself in its result.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fope_lab.stages.metric import ResultRecord

TIMINGS = {
    "seconds",
    "tokens_per_second",
    "data_seconds",
    "checkpoint_seconds",
    "validation_seconds",
}
"""What differs between two runs of the same training."""


def said(result: Mapping[str, Any] | None) -> dict[str, Any]:
    """The recorded values and the metrics of a result that has the shape of all results."""
    ResultRecord.parse(result)
    return {**result["recorded"], **{one["name"]: one["value"] for one in result["metrics"]}}
