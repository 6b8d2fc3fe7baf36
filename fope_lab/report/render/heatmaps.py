"""The heat maps of a report: a figure for each group, with a panel for each combination."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from fope_lab.drawing.heatmap import Heatmap, draw_heatmap
from fope_lab.report.render.figure import Drawing, Figure
from fope_lab.report.results.heatmaps import HeatmapGroup, MeanHeatmap


def draw_heatmaps(groups: Sequence[HeatmapGroup]) -> list[Figure]:
    """Draw a figure for each group."""
    titles = [group.title for group in groups]
    return [
        _draw(group, f"heatmap-{i}", only=titles.count(group.title) == 1)
        for i, group in enumerate(groups)
    ]


def _draw(group: HeatmapGroup, name: str, *, only: bool) -> Figure:
    named = group.section in group.metric and only
    title = group.title if named else f"{group.title} ({group.section})"
    scale = group.scale
    drawings = []
    for index, mean in enumerate(group.maps):
        heatmap = Heatmap(
            title=mean.label,
            x_label=str(scale["x_label"]),
            y_label=str(scale["y_label"]),
            x_ticks=tuple(f"{x}" for x in scale["x"]),
            y_ticks=tuple(f"{y:g}" if isinstance(y, float) else f"{y}" for y in scale["y"]),
            values=mean.values,
            low=float(scale["low"]),
            high=float(scale["high"]),
        )
        drawings.append(
            Drawing(
                functools.partial(draw_heatmap, heatmap),
                f"{name}-{index}",
                f"{title}: {mean.label}",
                _in_words(mean, scale),
            )
        )
    seeds = sorted({mean.seeds for mean in group.maps})
    counted = " or ".join(map(str, seeds))
    seeds_note = "One seed." if seeds == [1] else f"Means over {counted} seeds."
    return Figure(title, tuple(drawings), (seeds_note, *group.notes), natural=True)


def _in_words(mean: MeanHeatmap, scale: Mapping[str, Any]) -> str:
    """The rows of a heat map in words, for people who can't see it."""
    rows = [
        f"{scale['y_label']} {y}: {', '.join(f'{value:.3g}' for value in row)}"
        for y, row in zip(scale["y"], mean.values.tolist(), strict=True)
    ]
    return f"columns {', '.join(map(str, scale['x']))}; " + "; ".join(rows)
