"""The curves of a report: metrics by context length or position, and losses by training step.

Each panel is a drawing of its own, so that panels stand side by side on a wide page and below each
other on a narrow one. Every curve is labelled at its right end, outside the curves.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from fope_lab.drawing.plot import Curve
from fope_lab.report.compare.comparability_marks import ComparabilityMarks
from fope_lab.report.render.curve_parts import Style, band, cut_bands, frame_of, panel_drawings
from fope_lab.report.render.figure import Figure
from fope_lab.report.render.setting_curves import draw_over_setting
from fope_lab.report.render.tables import cell_text, seed_notes
from fope_lab.report.results.layout import GroupKey, MetricGroup, Series
from fope_lab.report.results.over_settings import SettingGroup
from fope_lab.report.results.training import TrainingCurves
from fope_lab.stages.metric import LENGTH, Metric

MOST_MARKERS = 24
"""A curve with more points has no markers."""


def draw_curves(
    groups: Sequence[MetricGroup],
    trainings: Sequence[TrainingCurves],
    marks: Mapping[GroupKey, ComparabilityMarks],
    settings: Sequence[SettingGroup] = (),
) -> list[Figure]:
    """Draw all curves: those by context length or position, those over a setting of a training,
    then the losses by training step.

    The notes name the curves whose models differ in more than what is compared.
    """
    curves = [group for group in groups if group.metric.axis is not None]
    labels = [series.label for group in curves for series in group.series]
    labels += [curve.label for training in trainings for curve in training.curves]
    labels += [series.label for group in settings for series in group.series]
    style = Style.of(labels)
    figures = [
        _draw_by_x(group, style, f"curves-{i}", marks[group.key].note)
        for i, group in enumerate(curves)
    ]
    figures += [draw_over_setting(one, style, f"setting-{i}") for i, one in enumerate(settings)]
    figures += [_draw_training(t, style, f"training-{i}") for i, t in enumerate(trainings)]
    return [figure for figure in figures if figure is not None]


def _draw_by_x(group: MetricGroup, style: Style, name: str, mark: str | None) -> Figure | None:
    """The curves of a group over x; None if no value is finite.

    `name` is unique within the page, and `mark` is the note on models that are not comparable.
    """
    metric = group.metric
    panels = {p: [_curve(group, series, style) for series in m] for p, m in group.panels.items()}
    drawn = [curve for curves in panels.values() for curve in curves]
    frame = frame_of(metric, metric.axis_label, drawn)
    if frame is None:
        return None
    by_length = metric.axis == LENGTH
    title = f"{group.title} by context length" if by_length else group.title
    xs = [x for x in group.xs if x is not None]
    drawings = []
    for panel, curves in panels.items():
        lengths = sorted({s.trained_length for s in group.panels[panel] if s.trained_length})
        drawings.append(
            dataclasses.replace(
                frame,
                title=panel,
                curves=tuple(curves),
                ticks=tuple(xs) if by_length else None,
                markers=len(xs) <= MOST_MARKERS,
                marks=tuple(n for n in lengths if metric.in_tokens and xs[0] <= n <= xs[-1]),
                level=group.chance,
            )
        )
    notes = [*_notes(group, style, xs), *cut_bands(metric, drawn, frame.y_range)]
    return Figure(
        title,
        panel_drawings(drawings, name, title, lambda curve: _points_in_words(curve, metric)),
        (*notes, mark) if mark else tuple(notes),
    )


def _draw_training(training: TrainingCurves, style: Style, name: str) -> Figure | None:
    """The curves of a training over its steps; None if no value is finite.

    `name` is unique within the page.
    """
    panels: dict[str, list[Curve]] = {}
    for curve in training.curves:
        look = style.look(curve.label)
        at = zip(curve.steps, curve.values, strict=True)
        texts = tuple(f"{training.metric.format(value)} at {step:.0f}" for step, value in at)
        drawn = Curve(style.names[curve.label], look, curve.steps, curve.values, texts=texts)
        panels.setdefault(curve.panel, []).append(drawn)
    every = [curve for curves in panels.values() for curve in curves]
    frame = frame_of(training.metric, "training step", every)
    if frame is None:
        return None
    title = f"{training.title} along training"
    drawings = [
        dataclasses.replace(frame, title=panel, curves=tuple(curves), markers=False)
        for panel, curves in panels.items()
    ]
    explained = style.explain(curve.label for curve in training.curves)
    return Figure(
        title,
        panel_drawings(drawings, name, title, lambda curve: _end_in_words(curve, training.metric)),
        (*training.notes, *explained),
    )


def _curve(group: MetricGroup, series: Series, style: Style) -> Curve:
    points = sorted((x, cell) for x, cell in series.cells.items() if x is not None)
    means = [cell.estimate.mean for _, cell in points]
    bands = [band(cell) for _, cell in points]
    return Curve(
        label=style.names[series.label],
        look=style.look(series.label),
        x=tuple(x for x, _ in points),
        y=tuple(math.nan if mean is None else mean for mean in means),
        low=tuple(low for low, _ in bands),
        high=tuple(high for _, high in bands),
        texts=tuple(f"{cell_text(group.metric, cell)} at {x}" for x, cell in points),
    )


def _points_in_words(curve: Curve, metric: Metric) -> str:
    pairs = zip(curve.x, curve.y, strict=True)
    points = [f"{metric.format(y)} at {x}" for x, y in pairs if math.isfinite(y)]
    return f"{curve.label}: {', '.join(points) or 'no value'}"


def _end_in_words(curve: Curve, metric: Metric) -> str:
    return f"{curve.label} ends at {metric.format(curve.finite[-1])}" if curve.finite else ""


def _notes(group: MetricGroup, style: Style, xs: Sequence[int]) -> list[str]:
    cells = group.cells
    notes = []
    if any(cell.estimate.ci95 for cell in cells):
        notes.append("Bands: 95 % interval over seeds (Student's t).")
    if any(cell.single and cell.single.interval for cell in cells):
        notes.append("Bands of one seed: 95 % interval of its evaluation, over what it read.")
    outside = [n for n in group.trained_lengths if not xs[0] <= n <= xs[-1]]
    if outside and group.metric.in_tokens:
        notes.append(f"Trained at {', '.join(map(str, outside))}, outside the plot.")
    if group.chance is not None:
        notes.append(f"Chance: guessing gives {group.metric.format(group.chance)}.")
    notes += seed_notes(cells)
    if group.shared:
        notes.append(f"The same for all curves: {'; '.join(group.shared)}.")
    notes += style.explain(series.label for series in group.series)
    for series in group.series:
        name = ", ".join(filter(None, (style.names[series.label], series.panel)))
        odd = [f"{x}" for x, c in series.cells.items() if c.values and c.estimate.mean is None]
        if odd:
            notes.append(f"{name}: not finite at {', '.join(odd)}, so no point is drawn there.")
    return notes
