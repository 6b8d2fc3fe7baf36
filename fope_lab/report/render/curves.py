"""The curves of a report: metrics by context length or position, over a setting of a training such
as the learning rate, and losses by training step.

Each panel is a drawing of its own, so that panels stand side by side on a wide page and below each
other on a narrow one. Every curve is labelled at its right end, outside the curves.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fope_lab.drawing.palette import Look, assign_looks
from fope_lab.drawing.plot import Curve, Panel, draw_panel
from fope_lab.report.compare.comparability import ComparabilityMarks
from fope_lab.report.render.figure import Drawing, Figure
from fope_lab.report.render.table import cell_text, seed_notes
from fope_lab.report.results.aggregate import Cell
from fope_lab.report.results.axes import shorten_labels
from fope_lab.report.results.layout import GroupKey, MetricGroup, Series
from fope_lab.report.results.settings import OPTIMISTIC, SettingGroup
from fope_lab.report.results.training import TrainingCurves
from fope_lab.stages.labels import label, split_label
from fope_lab.stages.metric import LENGTH, Metric

MOST_MARKERS = 24
"""A curve with more points has no markers."""
LOG_RATIO = 8
"""An axis is logarithmic if its values span a larger ratio than this."""
FRACTION_RANGE = (-0.03, 1.03)
BANDS = "Bands: 95 % interval over seeds (Student's t)."


@dataclass(frozen=True)
class Style:
    """The names and looks of all curves of a report, the same in every figure."""

    names: Mapping[str, str]  # label → the name at its curve
    looks: Mapping[str, Look]  # name → colour, marker and dash

    @staticmethod
    def of(labels: Iterable[str]) -> Style:
        """Name and style the curves with these labels."""
        names = shorten_labels(labels)
        return Style(names, assign_looks(names.values()))

    def look(self, of: str) -> Look:
        """The look of the curve with a label."""
        return self.looks[self.names[of]]

    def explain(self, labels: Iterable[str]) -> list[str]:
        """A note on the options that the names leave out; empty if they leave out none."""
        by_options: dict[str, dict[str, None]] = {}
        for whole in labels:
            name = self.names[whole]
            shown = split_label(name)[1]
            if options := ",".join(o for o in split_label(whole)[1] if o not in shown):
                by_options.setdefault(options, {})[name] = None
        parts = [
            f"{_listed(names)} {'have' if len(names) > 1 else 'has'} {options.replace(',', ', ')}"
            for options, names in by_options.items()
        ]
        return [f"{'; '.join(parts)}."] if parts else []


def _listed(names: Iterable[str]) -> str:
    """Names in a sentence: "nope, rope and fope"."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


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
    figures += [_draw_over_setting(one, style, f"setting-{i}") for i, one in enumerate(settings)]
    figures += [_draw_training(t, style, f"training-{i}") for i, t in enumerate(trainings)]
    return [figure for figure in figures if figure is not None]


def _draw_by_x(group: MetricGroup, style: Style, name: str, mark: str | None) -> Figure | None:
    """The curves of a group over x; None if no value is finite.

    `name` is unique within the page, and `mark` is the note on models that are not comparable.
    """
    metric = group.metric
    panels = {
        panel: [_curve(metric, series, style) for series in members]
        for panel, members in group.panels.items()
    }
    drawn = [curve for curves in panels.values() for curve in curves]
    frame = _frame(metric, metric.axis_label, drawn)
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
    notes = [*_notes(group, style, xs), *_cut_bands(metric, drawn, frame.y_range)]
    return Figure(
        title,
        _drawings(drawings, name, title, lambda curve: _points_in_words(curve, metric)),
        (*notes, mark) if mark else tuple(notes),
    )


def _draw_over_setting(group: SettingGroup, style: Style, name: str) -> Figure | None:
    """The curves over a setting, each in the panel of its other settings, with rings around what
    was chosen; None if no value is finite."""
    panels: dict[str, list[Curve]] = {}
    for series in group.series:
        curve = _curve(group.metric, series, style, group.is_chosen)
        panels.setdefault(series.panel, []).append(curve)
    drawn = [curve for curves in panels.values() for curve in curves]
    frame = _frame(group.metric, f"{group.name} of {group.trained}", drawn)
    if frame is None:
        return None
    ticks = {value: label(value) for value in group.values}
    drawings = [
        dataclasses.replace(frame, title=panel, curves=tuple(curves), tick_labels=ticks)
        for panel, curves in panels.items()
    ]
    notes = [BANDS] if any(cell.estimate.ci95 for cell in group.cells) else []
    notes += seed_notes(group.cells)
    notes += style.explain(series.label for series in group.series)
    if any(curve.rings for curve in drawn):
        notes.append(f"Rings: chosen, the least mean {group.rule} over the seeds. {OPTIMISTIC}")
    return Figure(
        group.title,
        _drawings(drawings, name, group.title, lambda c: _points_in_words(c, group.metric)),
        (*notes, *_cut_bands(group.metric, drawn, frame.y_range)),
    )


def _draw_training(training: TrainingCurves, style: Style, name: str) -> Figure | None:
    """The curves of a training over its steps; None if no value is finite."""
    panels: dict[str, list[Curve]] = {}
    for curve in training.curves:
        look = style.look(curve.label)
        at = zip(curve.steps, curve.values, strict=True)
        texts = tuple(f"{training.metric.format(value)} at {step:.0f}" for step, value in at)
        drawn = Curve(style.names[curve.label], look, curve.steps, curve.values, texts=texts)
        panels.setdefault(curve.panel, []).append(drawn)
    every = [curve for curves in panels.values() for curve in curves]
    frame = _frame(training.metric, "training step", every)
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
        _drawings(drawings, name, title, lambda curve: _end_in_words(curve, training.metric)),
        (*training.notes, *explained),
    )


def _curve(
    metric: Metric,
    series: Series,
    style: Style,
    is_chosen: Callable[[Cell], bool] = lambda cell: False,
) -> Curve:
    points = sorted((x, cell) for x, cell in series.cells.items() if x is not None)
    means = [cell.estimate.mean for _, cell in points]
    bands = [_band(cell) for _, cell in points]
    return Curve(
        label=style.names[series.label],
        look=style.look(series.label),
        x=tuple(x for x, _ in points),
        y=tuple(math.nan if mean is None else mean for mean in means),
        low=tuple(low for low, _ in bands),
        high=tuple(high for _, high in bands),
        texts=tuple(
            f"{cell_text(metric, cell)} at {label(x)}" + ", chosen" * is_chosen(cell)
            for x, cell in points
        ),
        rings=tuple(i for i, (_, cell) in enumerate(points) if is_chosen(cell)),
    )


def _band(cell: Cell) -> tuple[float, float]:
    """The interval of a cell over seeds; for one seed that of its evaluation, if it is known."""
    return cell.estimate.ci95 or (cell.single and cell.single.interval) or (math.nan, math.nan)


def _points_in_words(curve: Curve, metric: Metric) -> str:
    pairs = zip(curve.x, curve.y, strict=True)
    points = [f"{metric.format(y)} at {label(x)}" for x, y in pairs if math.isfinite(y)]
    chosen = "".join(f", chosen {label(curve.x[i])}" for i in curve.rings)
    return f"{curve.label}: {', '.join(points) or 'no value'}{chosen}"


def _end_in_words(curve: Curve, metric: Metric) -> str:
    return f"{curve.label} ends at {metric.format(curve.finite[-1])}" if curve.finite else ""


def _notes(group: MetricGroup, style: Style, xs: Sequence[int]) -> list[str]:
    cells = group.cells
    notes = [BANDS] if any(cell.estimate.ci95 for cell in cells) else []
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


def _drawings(
    panels: Sequence[Panel], name: str, title: str, in_words: Callable[[Curve], str]
) -> tuple[Drawing, ...]:
    """The drawings of the panels, all as wide as the widest, so that a page shows them in one size.

    `in_words` describes a curve to people who can't see it.
    """
    room = max(panel.label_length for panel in panels)
    return tuple(
        Drawing(
            functools.partial(draw_panel, dataclasses.replace(panel, room=room)),
            f"{name}-{i}",
            f"{title}: {panel.title}" if panel.title else title,
            "; ".join(filter(None, map(in_words, panel.curves))),
            panel.curves,
        )
        for i, panel in enumerate(panels)
    )


def _frame(metric: Metric, x_label: str, curves: Iterable[Curve]) -> Panel | None:
    """A panel without curves: its labels and the range of y; None if there is nothing to draw.

    The range covers the means, with some room. Bands beyond it are cut.
    """
    values = [value for curve in curves for value in curve.finite]
    if not values:
        return None
    low, high = min(values), max(values)
    log = not metric.is_fraction and low > 0 and high / low > LOG_RATIO
    if metric.is_fraction:
        y_range = FRACTION_RANGE
    elif log:
        room = (high / low) ** 0.06
        y_range = low / room, high * room
    else:
        room = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
        y_range = low - room, high + room
    y_label = f"{metric.label} (log scale)" if log else metric.label
    return Panel("", x_label, y_label, (), ticks=None, log_y=log, y_range=y_range)


def _cut_bands(
    metric: Metric, curves: Iterable[Curve], edges: tuple[float, float]
) -> Iterator[str]:
    """A note on the bands that are cut at the edges of the drawing."""
    if metric.is_fraction:  # no fraction is beyond the edges, whatever the interval of its mean
        return
    low, high = edges
    beyond: dict[str, float] = {}
    for curve in curves:
        outside = [end for end in (*curve.low, *curve.high) if end < low or end > high]
        if outside:
            beyond[curve.label] = max(outside, key=abs)
    if beyond:
        words = "; ".join(f"{name} reaches {metric.format(end)}" for name, end in beyond.items())
        yield f"Bands are cut at the edge: {words}."
