"""One row of metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """Metrics of one step. `timestamp` is in milliseconds since the epoch, kept for MLflow."""

    step: int
    timestamp: int
    values: dict[str, float]
