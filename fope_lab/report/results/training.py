"""The loss of every training stage along its steps, from the durable rows.

Curves of finished stages and of those that were interrupted: what is durable is shown, and a stage
that is not done is named. Many rows are averaged into bins, which the figure says.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fope_lab.report.results.axes import Axes, read_axes
from fope_lab.report.results.metric_names import metric_of
from fope_lab.report.results.stage_results import StageResult
from fope_lab.stages.metric import Metric

BINS = 200


@dataclass(frozen=True)
class TrainingCurve:
    """One stage's values of one metric, at rising steps."""

    label: str
    panel: str
    steps: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class TrainingCurves:
    """One metric along the training of one stage of the sweep file, over axes and seeds."""

    stage: str
    metric: Metric
    curves: tuple[TrainingCurve, ...]
    notes: tuple[str, ...]

    @property
    def title(self) -> str:
        """What the figure shows."""
        return f"{self.metric.label.capitalize()} ({self.stage})"


def group_training_curves(readings: Iterable[StageResult]) -> tuple[TrainingCurves, ...]:
    """A block for each stage of the sweep file and each loss that it logged more than once."""
    stages: dict[str, list[StageResult]] = {}
    for reading in readings:
        stages.setdefault(reading.stage.section, []).append(reading)
    blocks = []
    for stage, group in stages.items():
        axes = read_axes(reading.stage for reading in group)
        names = dict.fromkeys(name for r in group for row in r.rows for name in row.values)
        for metric in (metric_of(group[0].stage, name) for name in names):
            if metric is None or metric.better is None or metric.axis is not None:
                continue
            block = _block(stage, metric, group, axes)
            if block.curves:
                blocks.append(block)
    return tuple(blocks)


def _block(stage: str, metric: Metric, group: Sequence[StageResult], axes: Axes) -> TrainingCurves:
    curves, notes = [], []
    binned = 0
    for reading in group:
        points = [(r.step, r.values[metric.name]) for r in reading.rows if metric.name in r.values]
        size = -(-len(points) // BINS)
        if len(points) < 2:
            continue
        binned = max(binned, size)
        bins = [points[i : i + size] for i in range(0, len(points), size)]
        curves.append(
            TrainingCurve(
                label=axes.label(reading.stage, stage),
                panel=axes.panel(reading.stage),
                steps=tuple(statistics.fmean(step for step, _ in part) for part in bins),
                values=tuple(statistics.fmean(value for _, value in part) for part in bins),
            )
        )
        if not reading.state.is_done:
            notes.append(
                f"{reading.stage.label} is {reading.state.status}: up to its last checkpoint."
            )
    seeds = {reading.stage.seed for reading in group}
    if len(seeds) > 1:
        notes.insert(0, "A curve for each seed.")
    if binned > 1:
        notes.insert(0, f"Each point is the mean of up to {binned} logged rows.")
    return TrainingCurves(stage, metric, tuple(curves), tuple(notes))
