"""Figures over a setting of a training, such as the learning rate; rings mark what was chosen."""

from __future__ import annotations

import dataclasses
import math

from fope_lab.drawing.plot import Curve
from fope_lab.report.compare.own_settings import OPTIMISTIC
from fope_lab.report.render.curve_parts import Style, band, cut_bands, frame_of, panel_drawings
from fope_lab.report.render.figure import Figure
from fope_lab.report.render.tables import cell_text, seed_notes
from fope_lab.report.results.over_settings import SettingGroup, SettingSeries
from fope_lab.stages.labels import label


def draw_over_setting(group: SettingGroup, style: Style, name: str) -> Figure | None:
    """The curves of a group, each in the panel of its other settings; None if no value is finite.

    `name` is unique within the page.
    """
    panels: dict[str, list[Curve]] = {}
    for series in group.series:
        panels.setdefault(series.panel, []).append(_curve(group, series, style))
    drawn = [curve for curves in panels.values() for curve in curves]
    frame = frame_of(group.metric, f"{group.name} of {group.trained}", drawn)
    if frame is None:
        return None
    cells = [point.cell for series in group.series for point in series.points]
    ticks = {value: label(value) for value in group.values}
    drawings = [
        dataclasses.replace(frame, title=panel, curves=tuple(curves), tick_labels=ticks)
        for panel, curves in panels.items()
    ]
    notes = []
    if any(cell.estimate.ci95 for cell in cells):
        notes.append("Bands: 95 % interval over seeds (Student's t).")
    notes += seed_notes(cells)
    notes += style.explain(series.label for series in group.series)
    if any(curve.rings for curve in drawn):
        by = (group.by or "").replace("_", " ")
        notes.append(f"Rings: chosen, the least mean {by} over the seeds. {OPTIMISTIC}")
    return Figure(
        group.title,
        panel_drawings(drawings, name, group.title, lambda curve: _in_words(curve, group)),
        (*notes, *cut_bands(group.metric, drawn, frame.y_range)),
    )


def _curve(group: SettingGroup, series: SettingSeries, style: Style) -> Curve:
    points = series.points
    means = [point.cell.estimate.mean for point in points]
    bands = [band(point.cell) for point in points]
    return Curve(
        label=style.names[series.label],
        look=style.look(series.label),
        x=tuple(point.value for point in points),
        y=tuple(math.nan if mean is None else mean for mean in means),
        low=tuple(low for low, _ in bands),
        high=tuple(high for _, high in bands),
        texts=tuple(
            f"{cell_text(group.metric, point.cell)} at {label(point.value)}"
            + ", chosen" * point.chosen
            for point in points
        ),
        rings=tuple(i for i, point in enumerate(points) if point.chosen),
    )


def _in_words(curve: Curve, group: SettingGroup) -> str:
    pairs = zip(curve.x, curve.y, strict=True)
    points = [f"{group.metric.format(y)} at {label(x)}" for x, y in pairs if math.isfinite(y)]
    chosen = "".join(f", chosen {label(curve.x[i])}" for i in curve.rings)
    return f"{curve.label}: {', '.join(points) or 'no value'}{chosen}"
