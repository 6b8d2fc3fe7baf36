"""The losses of every training stage by step, from the durable rows.

Unfinished stages have curves too: what is durable is shown, and a note names the stage. Long
curves are averaged over bins of rows, and a note says so.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from fope_lab.report.results.axes import Axes, read_axes
from fope_lab.report.results.stage_results import StageResult, group_by_section
from fope_lab.stages.metric import Metric

BINS = 200


@dataclass(frozen=True)
class TrainingCurve:
    """The values of one metric of one stage, at rising steps."""

    label: str
    panel: str
    steps: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class TrainingCurves:
    """One metric of one training section of the sweep file, over all axes and seeds."""

    section: str
    metric: Metric
    curves: tuple[TrainingCurve, ...]
    notes: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"{self.metric.label.capitalize()} ({self.section})"


def group_training_curves(
    results: Iterable[StageResult], sections: Collection[str] | None = None
) -> tuple[TrainingCurves, ...]:
    """Group the curves by section of the sweep file and by loss; a curve has at least two rows.

    `sections` are those of the trainings that are shown; the default is all.
    """
    groups = []
    for section, members in group_by_section(results).items():
        trains = members[0].stage.spec.trains
        if sections is not None and not (trains and section in sections):
            continue
        axes = read_axes(result.stage for result in members)
        names = dict.fromkeys(name for r in members for row in r.rows for name in row.values)
        declared = members[0].metrics
        for metric in (declared[name] for name in names if name in declared):
            if metric.better is not None and metric.axis is None:
                group = _group(section, metric, members, axes)
                groups += [group] if group.curves else []
    return tuple(groups)


def _group(
    section: str, metric: Metric, members: Sequence[StageResult], axes: Axes
) -> TrainingCurves:
    curves, notes = [], []
    largest_bin = 0
    for result in members:
        points = [(r.step, r.values[metric.name]) for r in result.rows if metric.name in r.values]
        if len(points) < 2:
            continue
        size = -(-len(points) // BINS)
        largest_bin = max(largest_bin, size)
        bins = (points[i : i + size] for i in range(0, len(points), size))
        means = [tuple(map(statistics.fmean, zip(*part, strict=True))) for part in bins]
        steps, values = zip(*means, strict=True)
        label, panel = axes.label(result.stage, section), axes.panel(result.stage)
        curves.append(TrainingCurve(label, panel, steps, values))
        if not result.state.is_done:
            status = result.state.status
            notes.append(f"{result.stage.label} is {status}: up to its last checkpoint.")
    if len({result.stage.seed for result in members}) > 1:
        notes.insert(0, "A curve for each seed.")
    if largest_bin > 1:
        notes.insert(0, f"Each point is the mean of up to {largest_bin} logged rows.")
    return TrainingCurves(section, metric, tuple(curves), tuple(notes))
