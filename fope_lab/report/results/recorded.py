"""What figures show besides metrics: losses by step, heat maps, and the finished analyses.

Unfinished trainings have curves too: what is durable is shown, and a note names the stage. Long
curves are averaged over bins of rows, and a note says so.

The `heatmaps` of a result are a list of {title, metric, x_label, y_label, x, y, values, low, high}.
`values` has a row for each y; a missing value is null. A kind of stage may have further ones among
the details of its result (`heatmaps_in`).
"""

from __future__ import annotations

import math
import statistics
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fope_lab.report.results.cells import StageResult, group_by_section, group_seeds
from fope_lab.report.results.layout import Axes, read_axes
from fope_lab.stages.base import Picture
from fope_lab.stages.metric import ARRAYS, Metric
from fope_lab.store.folder import StageFolder
from fope_lab.sweep.graph import Stage

if TYPE_CHECKING:
    import matplotlib.figure

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
    `sections` are those of the trainings that are shown; the default is all."""
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
                group = _losses(section, metric, members, axes)
                groups += [group] if group.curves else []
    return tuple(groups)


def _losses(
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


SCALE = ("x_label", "y_label", "x", "y", "low", "high")
"""The fields in which all maps of a group must be equal."""


@dataclass(frozen=True)
class MeanHeatmap:
    """The mean over seeds of one combination's heat maps."""

    label: str
    axes: Mapping[str, Any]
    values: NDArray[np.float64]  # (y, x); NaN where a seed has no value
    seeds: int


@dataclass(frozen=True)
class HeatmapGroup:
    """All heat maps of one section of the sweep file that share a title."""

    section: str
    title: str
    metric: str
    scale: Mapping[str, Any]  # the fields of SCALE
    maps: tuple[MeanHeatmap, ...]
    notes: tuple[str, ...]


def group_heatmaps(results: Sequence[StageResult]) -> tuple[HeatmapGroup, ...]:
    """Group the heat maps of all stages by their section of the sweep file and their title."""
    groups: list[HeatmapGroup] = []
    for section, members in group_by_section(results).items():
        axes = read_axes(result.stage for result in members)
        for title in dict.fromkeys(entry["title"] for r in members for entry in _entries(r)):
            groups += _mean_maps(section, title, members, axes)
    return tuple(groups)


def _mean_maps(
    section: str, title: str, members: Sequence[StageResult], axes: Axes
) -> Iterator[HeatmapGroup]:
    """Average the maps with this title over seeds; nothing if none of them is whole."""
    scale: dict[str, Any] = {}
    metric = ""
    maps: list[MeanHeatmap] = []
    notes: list[str] = []
    for seeds in group_seeds(members):
        arrays = []
        for result in seeds:
            for entry in _entries(result):
                if entry["title"] != title:
                    continue
                values, own_scale = _map_values(entry), {field: entry[field] for field in SCALE}
                if values is None or own_scale != (scale or own_scale):
                    notes.append(
                        f"The map of {result.stage.label} is damaged or has another scale,"
                        " so it is left out."
                    )
                    continue
                scale, metric = own_scale, entry["metric"]
                arrays.append(values)
        if arrays:
            first = seeds[0].stage
            label = ", ".join(filter(None, (axes.label(first, section), axes.panel(first))))
            maps.append(MeanHeatmap(label, dict(first.axes), np.mean(arrays, axis=0), len(arrays)))
    if maps:
        yield HeatmapGroup(section, title, metric, scale, tuple(maps), tuple(notes))


def _entries(result: StageResult) -> list[Mapping[str, Any]]:
    """The heat maps that a result has, and the one that its details are enough for."""
    return [*result.record.heatmaps, *result.stage.spec.heatmaps_in(result.record.details)]


def _map_values(entry: Mapping[str, Any]) -> NDArray[np.float64] | None:
    """The values of a map, (y, x); None unless there is a number or null for each y and x."""
    try:
        values = np.array(entry["values"], np.float64)  # null becomes NaN
    except (TypeError, ValueError):
        return None
    whole = values.shape == (len(entry["y"]), len(entry["x"]))
    return values if whole and math.isfinite(entry["high"] - entry["low"]) else None


class DamagedError(Exception):
    """The arrays of an analysis are missing, or no figure can be drawn from them."""


@dataclass(frozen=True)
class AnalysisResult:
    """A finished analysis; `title` names it and the values that set it apart from others."""

    title: str
    stage: Stage
    analysis: Picture
    numbers: Mapping[str, float]
    folder: Path

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Read the arrays from the store. They can be large, so only drawing reads them. Raises
        DamagedError."""
        checkpoint = StageFolder(self.folder).checkpoint()
        if checkpoint is None:
            raise DamagedError(f"{self.folder} has no arrays")
        path = checkpoint.path / ARRAYS
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
            raise DamagedError(f"{path} can't be read: {error}") from error

    def draw(self) -> matplotlib.figure.Figure:
        """Draw the arrays. Raises DamagedError."""
        arrays = self.arrays()
        try:
            return self.analysis.draw(arrays)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise DamagedError(
                f"{self.folder} has arrays that {self.analysis.name} can't be drawn from: {error!r}"
            ) from error


def read_analyses(results: Sequence[StageResult]) -> tuple[AnalysisResult, ...]:
    """The finished analyses in the order of the sweep file."""
    analyses = []
    for section, members in group_by_section(results).items():
        axes = read_axes(result.stage for result in members)
        several_seeds = len({result.stage.seed for result in members}) > 1
        for result in members:
            stage, analysis = result.stage, result.stage.spec.picture()
            if analysis is None or not result.state.is_done:
                continue
            name = analysis.name
            title = name if section == name else f"{name} ({section})"
            parts = [stage.embedding]
            if axes.series:
                parts = [axes.label(stage, section), axes.panel(stage)]
            if several_seeds:
                parts.append(f"seed {stage.seed}")
            if details := ", ".join(filter(None, parts)):
                title = f"{title}: {details}"
            numbers = result.record.numbers
            analyses.append(AnalysisResult(title, stage, analysis, numbers, result.folder))
    return tuple(analyses)
