"""The curves of a report: a metric by context length or position, and the loss along training.

One drawing per panel, so that panels stand side by side on a wide page and below each other on a
narrow one. Every curve is labelled at its right end; nothing lies over the curves.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fope_lab.drawing.palette import Look, assign_looks
from fope_lab.drawing.plot import Curve, Panel, draw_panel
from fope_lab.drawing.svg import inline_svg
from fope_lab.report.compare.comparability_marks import comparability_marks
from fope_lab.report.compare.training_history import TrainingHistory
from fope_lab.report.render.figure import Figure
from fope_lab.report.render.tables import seed_notes
from fope_lab.report.results.aggregate import Cell
from fope_lab.report.results.axes import shorten_labels
from fope_lab.report.results.layout import MetricGroup, Series
from fope_lab.report.results.stage_results import StageResult
from fope_lab.report.results.training import TrainingCurve, TrainingCurves, group_training_curves
from fope_lab.stages.labels import split_label
from fope_lab.stages.metric import Metric

LOG_RATIO = 8  # an axis whose values span more than this is logarithmic
FRACTION_RANGE = (-0.03, 1.03)
NO_INTERVAL = (math.nan, math.nan)
MOST_MARKERS = 24
"""A curve of more points has no marker at each."""


@dataclass(frozen=True)
class Style:
    """How the lines of a report are named and drawn: the same in all its figures."""

    names: Mapping[str, str]  # label → the name at its curve
    looks: Mapping[str, Look]  # name → colour, marker and dash

    @staticmethod
    def of(labels: Iterable[str]) -> Style:
        """The style of a report with these lines."""
        names = shorten_labels(labels)
        return Style(names, assign_looks(names.values()))

    def look(self, label: str) -> Look:
        """The look of a line."""
        return self.looks[self.names[label]]

    def explain(self, labels: Iterable[str]) -> list[str]:
        """A note that gives the options that names leave out."""
        having: dict[str, dict[str, None]] = {}
        for label in labels:
            name = self.names[label]
            if left_out := ",".join(
                o for o in split_label(label)[1] if o not in split_label(name)[1]
            ):
                having.setdefault(left_out, {})[name] = None
        told = [
            f"{', '.join(names)} {'have' if len(names) > 1 else 'has'} {options}"
            for options, names in having.items()
        ]
        return [f"{'; '.join(told)}."] if told else []


def draw_all(
    blocks: Sequence[MetricGroup],
    readings: Sequence[StageResult],
    histories: Mapping[str, TrainingHistory],
) -> list[Figure]:
    """Every curve of a report: over context length or position, then losses along training. By the
    histories of the models, what may not be compared is named."""
    curves = [block for block in blocks if block.metric.x is not None]
    trainings = group_training_curves(readings)
    labels = [line.label for block in curves for line in block.lines]
    labels += [history.label for block in trainings for history in block.curves]
    style = Style.of(labels)
    drawn = [
        _with_unequal(draw_by_x(block, style, f"curves-{i}"), block, histories)
        for i, block in enumerate(curves)
    ]
    drawn += [draw_training(block, style, f"training-{i}") for i, block in enumerate(trainings)]
    return [figure for figure in drawn if figure is not None]


def _with_unequal(
    figure: Figure | None, block: MetricGroup, histories: Mapping[str, TrainingHistory]
) -> Figure | None:
    """The figure with a note of the curves whose models may not be compared."""
    note = comparability_marks(block, histories).note
    if figure is None or note is None:
        return figure
    return dataclasses.replace(figure, notes=(*figure.notes, note))


def draw_by_x(block: MetricGroup, style: Style, name: str) -> Figure | None:
    """A block's curves over its x; None if there is no finite value. `name`: unique in the page."""
    groups = {p: [_curve(line, style) for line in lines] for p, lines in block.panels.items()}
    scale = _scale(block.metric, (curve for group in groups.values() for curve in group))
    if scale is None:
        return None
    by_length = block.metric.x == "length"
    title = f"{block.title} by context length" if by_length else block.title
    xs = [x for x in block.xs if x is not None]
    panels: list[Panel] = []
    for panel_name, curves in groups.items():
        lengths = {line.train_length for line in block.panels[panel_name] if line.train_length}
        seen = [n for n in sorted(lengths) if block.metric.in_tokens and _within(n, xs)]
        panels.append(
            Panel(
                title=panel_name,
                x_label=block.metric.x_label,
                y_label=_y_label(block.metric, scale[0]),
                curves=tuple(curves),
                ticks=tuple(xs) if by_length else None,
                markers=len(xs) <= MOST_MARKERS,
                log_y=scale[0],
                y_range=scale[1],
                marks=tuple(seen),
                level=block.chance,
            )
        )
    drawn = [curve for group in groups.values() for curve in group]
    return Figure(
        title,
        _drawings(panels, name, title, lambda curve: _points(curve, block.metric)),
        (*_notes(block, style), *_cut(block.metric, drawn, scale[1])),
    )


def draw_training(block: TrainingCurves, style: Style, name: str) -> Figure | None:
    """The values of a training block along the steps; None if none is finite."""
    groups: dict[str, list[Curve]] = {}
    for history in block.curves:
        groups.setdefault(history.panel, []).append(_history_curve(history, style))
    scale = _scale(block.metric, (curve for group in groups.values() for curve in group))
    if scale is None:
        return None
    title = f"{block.title} along training"
    panels = [
        Panel(
            title=panel_name,
            x_label="training step",
            y_label=_y_label(block.metric, scale[0]),
            curves=tuple(curves),
            ticks=None,
            markers=False,
            log_y=scale[0],
            y_range=scale[1],
        )
        for panel_name, curves in groups.items()
    ]
    explained = style.explain(history.label for history in block.curves)
    return Figure(
        title,
        _drawings(panels, name, title, lambda curve: _end(curve, block.metric)),
        (*block.notes, *explained),
    )


def _drawings(
    panels: Sequence[Panel], name: str, title: str, words: Callable[[Curve], str]
) -> tuple[str, ...]:
    """The panels of a figure, all as wide as the widest, so that a page draws them in one size;
    `words` tells a curve to those who can't see it."""
    room = max(panel.label_length for panel in panels)
    return tuple(
        inline_svg(
            draw_panel(dataclasses.replace(panel, room=room)),
            f"{name}-{i}",
            f"{title}: {panel.title}" if panel.title else title,
            "; ".join(filter(None, map(words, panel.curves))),
        )
        for i, panel in enumerate(panels)
    )


def _curve(line: Series, style: Style) -> Curve:
    points = sorted((x, cell) for x, cell in line.cells.items() if x is not None)
    means = [cell.estimate.mean for _, cell in points]
    bands = [_band(cell) or NO_INTERVAL for _, cell in points]
    return Curve(
        label=style.names[line.label],
        look=style.look(line.label),
        x=tuple(x for x, _ in points),
        y=tuple(math.nan if mean is None else mean for mean in means),
        low=tuple(low for low, _ in bands),
        high=tuple(high for _, high in bands),
    )


def _within(length: int, xs: Sequence[int | None]) -> bool:
    known = [x for x in xs if x is not None]
    return known[0] <= length <= known[-1]


def _band(cell: Cell) -> tuple[float, float] | None:
    """The interval over seeds; of one seed, that of its evaluation, if it is known."""
    return cell.estimate.ci95 or (cell.single and cell.single.interval) or None


def _history_curve(history: TrainingCurve, style: Style) -> Curve:
    name = style.names[history.label]
    return Curve(name, style.looks[name], history.steps, history.values)


def _scale(metric: Metric, curves: Iterable[Curve]) -> tuple[bool, tuple[float, float]] | None:
    """(logarithmic, (lowest, highest)): all curves and some room; None if nothing can be drawn.

    The range is that of the means: a band that is wider is cut at the edge.
    """
    values = [value for curve in curves for value in curve.finite]
    if not values:
        return None
    if metric.is_fraction:
        return False, FRACTION_RANGE
    low, high = min(values), max(values)
    if low > 0 and high / low > LOG_RATIO:
        room = (high / low) ** 0.06
        return True, (low / room, high * room)
    room = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    return False, (low - room, high + room)


def _cut(metric: Metric, curves: Iterable[Curve], edges: tuple[float, float]) -> Iterator[str]:
    """A note of the bands that are cut at the edges of the drawing, if any are."""
    if metric.is_fraction:  # no fraction is beyond its edges, whatever the interval of its mean
        return
    low, high = edges
    beyond: dict[str, float] = {}
    for curve in curves:
        wide = [end for end in (*curve.low, *curve.high) if end < low or end > high]
        if wide:
            beyond[curve.label] = max(wide, key=abs)
    if beyond:
        words = "; ".join(f"{name} reaches {metric.format(end)}" for name, end in beyond.items())
        yield f"Bands are cut at the edge: {words}."


def _points(curve: Curve, metric: Metric) -> str:
    """A curve in words."""
    pairs = zip(curve.x, curve.y, strict=True)
    points = [f"{metric.format(y)} at {x}" for x, y in pairs if math.isfinite(y)]
    return f"{curve.label}: {', '.join(points) or 'no value'}"


def _end(curve: Curve, metric: Metric) -> str:
    """Where a training ends; empty if nothing of it is finite."""
    return f"{curve.label} ends at {metric.format(curve.finite[-1])}" if curve.finite else ""


def _y_label(metric: Metric, log: bool) -> str:
    return f"{metric.label} (log scale)" if log else metric.label


def _notes(block: MetricGroup, style: Style) -> list[str]:
    cells = [cell for line in block.lines for cell in line.cells.values()]
    notes = []
    if any(cell.estimate.ci95 for cell in cells):
        notes.append("Bands: 95 % interval over seeds (Student's t).")
    if any(cell.single and cell.single.interval for cell in cells):
        notes.append("Bands of one seed: 95 % interval over what its evaluation read.")
    outside = [n for n in block.train_lengths if not _within(n, block.xs)]
    if outside and block.metric.in_tokens:
        notes.append(f"Trained at {', '.join(map(str, outside))}, outside the plot.")
    if block.chance is not None:
        notes.append(f"Chance: guessing gives {block.metric.format(block.chance)}.")
    notes += seed_notes(cells)
    if block.shared:
        notes.append(f"The same for all curves: {'; '.join(block.shared)}.")
    notes += style.explain(line.label for line in block.lines)
    for line in block.lines:
        name = ", ".join(filter(None, (style.names[line.label], line.panel)))
        odd = [f"{x}" for x, c in line.cells.items() if c.values and c.estimate.mean is None]
        if odd:
            notes.append(f"{name}: not finite at {', '.join(odd)}, so no point is drawn there.")
    return notes
