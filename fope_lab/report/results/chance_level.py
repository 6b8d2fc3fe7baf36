"""What guessing gives, as the stages' results say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fope_lab.report.results.metrics import describe_metric
from fope_lab.report.results.stage_results import StageResult

LEAST_CHANCE = 0.002
"""Below it guessing is no level to compare with: 1 in 90,000 for a passkey of five digits."""


def chance_level(metric: str, stage: str, readings: Sequence[StageResult]) -> float | None:
    """The accuracy of guessing, where the results of a stage name one for the metric.

    A result's `chance` is a number, or numbers by metric; of results by task, each has its own.
    None if it is too low to be seen.
    """
    if not describe_metric(metric).is_fraction:
        return None
    found = set()
    for reading in readings:
        if reading.stage.section == stage:
            found |= {level for level in _levels(metric, reading.recorded) if _is_number(level)}
    return found.pop() if len(found) == 1 and min(found) >= LEAST_CHANCE else None


def _levels(metric: str, result: Mapping[str, Any]) -> list[Any]:
    tasks = result.get("tasks")
    named = [task for task in tasks if isinstance(task, Mapping)] if isinstance(tasks, list) else []
    chance = result.get("chance")
    return [
        *(task.get("chance") for task in named if metric == f"{task.get('task')}_accuracy"),
        chance.get(metric) if isinstance(chance, Mapping) else chance,
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
