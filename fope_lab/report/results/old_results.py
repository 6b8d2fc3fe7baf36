"""Reads results that were written before a result.json had its present shape (stages/result.py).

Such a file has the settings and the measurements of a stage side by side, each kind of stage in its
own way, and points of curves are in the rows of metrics only. Which of the names are measurements,
their names say (old_metric_names.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from fope_lab.report.results.old_metric_names import metric_of_stderr
from fope_lab.stages.metric import LENGTH, Metric
from fope_lab.stages.result import Measurement, MetricPoint, ResultRecord
from fope_lab.store import Row

MetricOf = Callable[[str], Metric | None]
"""Gives the metric of a name; None for a number that describes the run."""
NUMBERS = "numbers"
"""Where an analysis has its numbers, which no metric is declared for."""
MEASURED = (NUMBERS, "stderr", "score")
"""What results call measurements inside them."""
SIZES = ("tokens", "trials", "documents")
"""How much an evaluation read at each length."""


def lift_result(
    content: Mapping[str, Any], rows: Iterable[Row], metric_of: MetricOf
) -> ResultRecord:
    """The record of an old result.json and of the rows beside it."""
    heatmaps = content.get("heatmaps")
    return ResultRecord(
        metrics=tuple(_measurements(content, rows, metric_of)),
        numbers=content.get(NUMBERS) or {},
        recorded=_recorded(content, metric_of),
        heatmaps=tuple(m for m in heatmaps if isinstance(m, Mapping)) if _is_list(heatmaps) else (),
    )


def lift_numbers(record: ResultRecord) -> ResultRecord:
    """The record of an analysis from when its numbers were among the metrics."""
    numbers = {measurement.name: measurement.value for measurement in record.metrics}
    return dataclasses.replace(record, metrics=(), numbers=numbers)


def _measurements(
    content: Mapping[str, Any], rows: Iterable[Row], metric_of: MetricOf
) -> list[Measurement]:
    """The points of all curves, and the last single numbers."""
    logged = [(name, row.step, value) for row in rows for name, value in row.values.items()]
    values: dict[MetricPoint, float] = {}
    errors: dict[MetricPoint, float] = {}
    metrics: dict[str, Metric] = {}
    for name, step, value in [*logged, *((n, None, v) for n, v in content.items())]:
        of = metric_of_stderr(name)
        metric = metrics.get(of or name) or metric_of(of or name)
        if metric is None or not _is_number(value) or (step is None and metric.axis):
            continue
        metrics[metric.name] = metric
        (errors if of else values)[metric.name, step if metric.axis else None] = float(value)
    intervals = _intervals(content, [metrics[name] for name in {name for name, _ in values}])
    return [
        Measurement(
            name=name,
            x=x,
            value=value,
            stderr=errors.get((name, x)),
            ci95=intervals.get((name, x)),
            chance=_chance(metrics[name], content),
        )
        for (name, x), value in values.items()
    ]


def _intervals(
    content: Mapping[str, Any], metrics: Iterable[Metric]
) -> dict[MetricPoint, tuple[float, float]]:
    """The `ci95` that a result has by length: of the metric that an entry names, or else of the
    stage's only accuracy by length."""
    curves = {metric.name: metric for metric in metrics if metric.axis == LENGTH}
    accuracies = [name for name, metric in curves.items() if metric.is_fraction]
    intervals: dict[MetricPoint, tuple[float, float]] = {}
    for entry in [e for entries in content.values() if _is_list(entries) for e in entries]:
        if isinstance(entry, Mapping) and {"length", "ci95"} <= entry.keys():
            name = entry.get("metric") or (accuracies[0] if len(accuracies) == 1 else None)
            if name in curves:
                low, high = entry["ci95"]
                intervals[name, int(entry["length"])] = (float(low), float(high))
    return intervals


def _chance(metric: Metric, content: Mapping[str, Any]) -> float | None:
    """The accuracy of guessing: `chance` is a number or numbers by metric; a task has its own."""
    if not metric.is_fraction:
        return None
    tasks, chance = content.get("tasks"), content.get("chance")
    named = [task for task in tasks if isinstance(task, Mapping)] if _is_list(tasks) else []
    levels = {
        *(task.get("chance") for task in named if metric.name == f"{task.get('task')}_accuracy"),
        chance.get(metric.name) if isinstance(chance, Mapping) else chance,
    }
    numbers = [level for level in levels if _is_number(level)]
    return numbers[0] if len(numbers) == 1 else None


def _recorded(content: Mapping[str, Any], metric_of: MetricOf) -> dict[str, Any]:
    """A result without its measurements.

    Of an evaluation's entries for each length, the sizes: {"tokens": {"64": 1000, "128": 1000}};
    other lists of entries (by position, by task, heat maps) are measurements.
    """
    recorded = {}
    for name, value in content.items():
        entries = [e for e in value if isinstance(e, Mapping)] if _is_list(value) else []
        for size in SIZES:
            sizes = {str(e["length"]): e[size] for e in entries if {"length", size} <= e.keys()}
            if sizes:
                recorded[size] = sizes
        if not entries and not _is_measured(name, metric_of):
            setting = _without_measurements(value, metric_of)
            if setting != {}:
                recorded[name] = setting
    return recorded


def _without_measurements(value: Any, metric_of: MetricOf) -> Any:
    """A mapping without what it names as a metric, and so on inside it."""
    if not isinstance(value, Mapping):
        return value
    kept = {
        name: _without_measurements(item, metric_of)
        for name, item in value.items()
        if not (_is_number(item) and _is_measured(str(name), metric_of))
    }
    return {name: item for name, item in kept.items() if item != {}}


def _is_measured(name: str, metric_of: MetricOf) -> bool:
    return name in MEASURED or metric_of(metric_of_stderr(name) or name) is not None


def _is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, list | tuple)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
