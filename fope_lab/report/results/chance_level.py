"""What guessing gives, as the stages' results say it."""

from __future__ import annotations

from collections.abc import Sequence

from fope_lab.report.results.stage_results import StageResult

LEAST_CHANCE = 0.002
"""Below it guessing is no level to compare with: 1 in 90,000 for a passkey of five digits."""


def chance_level(metric: str, stage: str, results: Sequence[StageResult]) -> float | None:
    """The value that guessing gives, where the results of a stage agree on one for the metric.

    None if it is too low to be seen.
    """
    levels = {
        measurement.chance
        for result in results
        if result.stage.section == stage
        for measurement in result.record.metrics
        if measurement.name == metric and measurement.chance is not None
    }
    return levels.pop() if len(levels) == 1 and min(levels) >= LEAST_CHANCE else None
