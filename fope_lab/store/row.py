"""A row of metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One row of metrics: `timestamp` in milliseconds since the epoch, kept for exact replays."""

    step: int
    timestamp: int
    values: dict[str, float]
