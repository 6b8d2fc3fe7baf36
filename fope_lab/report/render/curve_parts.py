"""What the figures of a report share: the looks of their curves, their frames, their drawings."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fope_lab.drawing.palette import Look, assign_looks
from fope_lab.drawing.plot import Curve, Panel, draw_panel
from fope_lab.report.render.figure import Drawing
from fope_lab.report.results.aggregate import Cell
from fope_lab.report.results.axes import shorten_labels
from fope_lab.stages.labels import split_label
from fope_lab.stages.metric import Metric

LOG_RATIO = 8
"""An axis is logarithmic if its values span a larger ratio than this."""
FRACTION_RANGE = (-0.03, 1.03)
NO_INTERVAL = (math.nan, math.nan)


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

    def look(self, label: str) -> Look:
        """The look of the curve with this label."""
        return self.looks[self.names[label]]

    def explain(self, labels: Iterable[str]) -> list[str]:
        """A note on the options that the names leave out; empty if they leave out none."""
        by_options: dict[str, dict[str, None]] = {}
        for label in labels:
            name = self.names[label]
            shown = split_label(name)[1]
            if options := ",".join(o for o in split_label(label)[1] if o not in shown):
                by_options.setdefault(options, {})[name] = None
        parts = [
            f"{_listed(names)} {'have' if len(names) > 1 else 'has'} {options.replace(',', ', ')}"
            for options, names in by_options.items()
        ]
        return [f"{'; '.join(parts)}."] if parts else []


def panel_drawings(
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


def frame_of(metric: Metric, x_label: str, curves: Iterable[Curve]) -> Panel | None:
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


def cut_bands(metric: Metric, curves: Iterable[Curve], edges: tuple[float, float]) -> Iterator[str]:
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


def _listed(names: Iterable[str]) -> str:
    """Names in a sentence: "nope, rope and fope"."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def band(cell: Cell) -> tuple[float, float]:
    """The interval of a cell over seeds; for one seed that of its evaluation, if it is known."""
    return cell.estimate.ci95 or (cell.single and cell.single.interval) or NO_INTERVAL
