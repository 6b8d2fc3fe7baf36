"""A row of metrics, as the store keeps it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """The metrics of a step, logged at `timestamp`, which is in milliseconds since the epoch."""

    step: int
    timestamp: int
    values: dict[str, float]
