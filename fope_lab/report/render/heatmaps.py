"""The heat maps that stages leave in their results, as means over seeds.

A result's `heatmaps` are [{title, metric, x_label, y_label, x, y, values, low, high}], `values` in
rows of y; a value that is not there is null.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fope_lab.drawing.heatmap import Heatmap, draw_heatmap
from fope_lab.drawing.svg import inline_svg
from fope_lab.report.render.figure import Figure
from fope_lab.report.results.aggregate import group_seeds, json_value
from fope_lab.report.results.axes import Axes, read_axes
from fope_lab.report.results.stage_results import StageResult

SCALE = ("x_label", "y_label", "x", "y", "low", "high")
"""What the maps of a figure must have alike."""


@dataclass(frozen=True)
class MeanHeatmap:
    """A map of one combination of the axes, over its seeds."""

    label: str
    axes: Mapping[str, Any]
    values: NDArray[np.float64]  # (y, x), means over seeds; NaN where one has none
    seeds: int


@dataclass(frozen=True)
class HeatmapGroup:
    """The maps of one title of one stage of the sweep file."""

    stage: str
    title: str
    metric: str
    scale: Mapping[str, Any]  # the fields of SCALE
    lines: tuple[MeanHeatmap, ...]
    notes: tuple[str, ...]

    def as_json(self) -> list[dict[str, Any]]:
        """A map for each line, as `report --json` gives it."""
        return [
            {
                "stage": self.stage,
                "title": self.title,
                "metric": self.metric,
                "axes": json_value(line.axes),
                "n": line.seeds,
                **json_value(self.scale),
                "values": [
                    [None if math.isnan(value) else value for value in row]
                    for row in line.values.tolist()
                ],
            }
            for line in self.lines
        ]


def build_heatmaps(readings: Sequence[StageResult]) -> tuple[HeatmapGroup, ...]:
    """A block for each stage of the sweep file and each title of its maps."""
    stages: dict[str, list[StageResult]] = {}
    for reading in readings:
        stages.setdefault(reading.stage.section, []).append(reading)
    blocks = []
    for stage, members in stages.items():
        axes = read_axes(reading.stage for reading in members)
        titles = dict.fromkeys(str(m.get("title")) for r in members for m in _maps(r))
        for title in titles:
            if block := _block(stage, title, members, axes):
                blocks.append(block)
    return tuple(blocks)


def draw_heatmaps(blocks: Sequence[HeatmapGroup]) -> list[Figure]:
    """A figure for each block, with a panel for each of its lines."""
    titles = [block.title for block in blocks]
    return [
        _draw(block, f"heatmap-{i}", only=titles.count(block.title) == 1)
        for i, block in enumerate(blocks)
    ]


def _maps(reading: StageResult) -> list[Mapping[str, Any]]:
    return list(reading.record.heatmaps)


def _block(
    stage: str, title: str, members: Sequence[StageResult], axes: Axes
) -> HeatmapGroup | None:
    """None if no map of this title can be read."""
    scale: dict[str, Any] | None = None
    metric = ""
    lines: list[MeanHeatmap] = []
    notes: list[str] = []
    for group in group_seeds(members):
        found = []
        for reading in group:
            for one in _maps(reading):
                if str(one.get("title")) != title:
                    continue
                values = _values(one)
                own = {field: one.get(field) for field in SCALE}
                if values is None or own != (scale or own):
                    notes.append(f"The map of {reading.stage.label} is not like the others.")
                    continue
                scale, metric = own, str(one.get("metric"))
                found.append(values)
        if found:
            first = group[0].stage
            label = ", ".join(filter(None, (axes.label(first, stage), axes.panel(first))))
            mean = np.mean(found, axis=0)
            lines.append(MeanHeatmap(label, dict(first.axes), mean, len(found)))
    if scale is None:
        return None
    return HeatmapGroup(stage, title, metric, scale, tuple(lines), tuple(notes))


def _values(entry: Mapping[str, Any]) -> NDArray[np.float64] | None:
    """The values of a map (y, x); None if it has not a number or null for each y and x."""
    try:
        values = np.array(entry["values"], np.float64)  # null becomes NaN
        shape = (len(entry["y"]), len(entry["x"]))
        limits = [float(entry[end]) for end in ("low", "high")]
    except (KeyError, TypeError, ValueError):
        return None
    return values if values.shape == shape and all(map(math.isfinite, limits)) else None


def _draw(block: HeatmapGroup, name: str, *, only: bool) -> Figure:
    named = block.stage in block.metric and only
    title = block.title if named else f"{block.title} ({block.stage})"
    drawings = []
    for place, line in enumerate(block.lines):
        heatmap = Heatmap(
            title=line.label,
            x_label=str(block.scale["x_label"]),
            y_label=str(block.scale["y_label"]),
            x_ticks=tuple(f"{x}" for x in block.scale["x"]),
            y_ticks=tuple(f"{y:g}" if isinstance(y, float) else f"{y}" for y in block.scale["y"]),
            values=line.values,
            low=float(block.scale["low"]),
            high=float(block.scale["high"]),
        )
        described = _in_words(line, block.scale)
        svg = inline_svg(
            draw_heatmap(heatmap), f"{name}-{place}", f"{title}: {line.label}", described
        )
        drawings.append(svg)
    seeds = sorted({line.seeds for line in block.lines})
    counted = " or ".join(map(str, seeds)) + (" seeds" if seeds != [1] else " seed")
    means = "One seed." if seeds == [1] else f"Means over {counted}."
    return Figure(title, tuple(drawings), (means, *block.notes), natural=True)


def _in_words(line: MeanHeatmap, scale: Mapping[str, Any]) -> str:
    """The rows of a map, for those who can't see it."""
    rows = [
        f"{scale['y_label']} {y}: {', '.join(f'{value:.3g}' for value in row)}"
        for y, row in zip(scale["y"], line.values.tolist(), strict=True)
    ]
    return f"columns {', '.join(map(str, scale['x']))}; " + "; ".join(rows)
