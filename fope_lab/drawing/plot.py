"""Draws a panel with matplotlib: curves with bands, each labelled at its end.

Sizes are in points; the SVG is scaled to the page. Figures are created without pyplot, so that no
global state remains, and matplotlib is imported only when something is drawn.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fope_lab.drawing.panels import open_frame
from fope_lab.drawing.svg import COLOURS, DASHED, MUTED, PAPER, STYLE, Look, series_id

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 400.0, 250.0  # of the plotting area, with few labels
LEFT, BOTTOM, TOP = 58.0, 46.0, 14.0
TITLE_ROOM = MARK_ROOM = 18.0
LABEL_GAP, CHARACTER, BOLD_CHARACTER = 14.0, 6.9, 7.4
KEY_OFFSET, LABEL_OFFSET = 20.0, 28.0  # of a label's marker and text from the plotting area
LONGEST_LABEL = 36
_LEADER = {"arrowstyle": "-", "linewidth": 0.8, "alpha": 0.7, "shrinkA": 0, "shrinkB": 5}


@dataclass(frozen=True)
class Curve:
    """A curve and its band from `low` to `high`; NaN leaves a gap. `texts` are what a page says of
    each point, and `rings` the indices of the points with a ring."""

    label: str  # curves with the same label are labelled once
    look: Look
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    texts: tuple[str, ...] = ()
    rings: tuple[int, ...] = ()

    @property
    def finite(self) -> list[tuple[float, float]]:
        return [(x, y) for x, y in zip(self.x, self.y, strict=True) if math.isfinite(y)]


@dataclass(frozen=True)
class Panel:
    """The content of a drawing: its curves, labels, ticks and marks."""

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    ticks: Mapping[float, str] | None  # on a logarithmic axis; None: a linear axis
    log_y: bool
    y_range: tuple[float, float]
    markers: bool = True  # at each point
    marks: tuple[int, ...] = ()  # trained lengths
    level: float | None = None  # chance
    room: int = 0  # characters right of the curves, if their labels have no more

    @property
    def label_length(self) -> int:
        return max(map(len, _ends(self)), default=0)

    @property
    def height(self) -> float:
        """Of the plotting area, so that there is room for every label."""
        return max(HEIGHT, LABEL_GAP * (len(_ends(self)) - 1))


def draw_panel(panel: Panel) -> Figure:
    """Draw a panel as a matplotlib figure in the colours of svg.py."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    right = LABEL_OFFSET + CHARACTER * max(panel.room, panel.label_length)
    breakable = re.sub(r",(?=\S)", ", ", panel.title)
    title = textwrap.wrap(breakable, int((WIDTH + right) / BOLD_CHARACTER))
    top = TOP + TITLE_ROOM * len(title) + MARK_ROOM * len(panel.marks)
    width, height = LEFT + WIDTH + right, BOTTOM + panel.height + top
    with rc_context(STYLE):
        figure = Figure(figsize=(width / 72, height / 72), dpi=72)
        box = (LEFT / width, BOTTOM / height, WIDTH / width, panel.height / height)
        axes = figure.add_axes(box)
        _scales(axes, panel)
        open_frame(axes)
        axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
        for i, line in enumerate(title, 1):
            rise = panel.height + 8 + MARK_ROOM * len(panel.marks) + TITLE_ROOM * (len(title) - i)
            axes.text(0, rise / panel.height, line, transform=axes.transAxes, fontweight="bold")
        _marks(axes, panel)
        for curve in panel.curves:
            _draw(axes, curve, points=panel.markers)
        _labels(axes, _ends(panel), panel.height)
    return figure


def spread(targets: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return positions at least `gap` apart, in the order of the targets and as close to them as
    possible.

    The positions are in [low, high] if they fit there; otherwise they start at `low`. Neighbours
    that are too close move as a block around their common centre (isotonic regression).
    """
    from scipy.optimize import isotonic_regression

    if not targets:
        return []
    order = np.argsort(targets, kind="stable")
    shifts = gap * np.arange(len(targets))
    blocks = isotonic_regression(np.asarray(targets)[order] - shifts).x
    positions = np.empty(len(targets))
    positions[order] = np.clip(blocks, low, max(low, high - shifts[-1])) + shifts
    return positions.tolist()


def length_label(length: int) -> str:
    """Return a context length in a few characters: 512, 8192, 16k."""
    return f"{length // 1024}k" if length >= 10_000 and length % 1024 == 0 else str(length)


class _End(NamedTuple):
    """The end of a label's curves, their label and look; both are None for the level of chance."""

    x: float
    y: float
    look: Look | None
    label: str | None = None


def _ends(panel: Panel) -> dict[str, _End]:
    points: dict[str, list[tuple[float, float]]] = {}
    looks = {curve.label: curve.look for curve in panel.curves}
    for curve in panel.curves:
        if finite := curve.finite:
            points.setdefault(curve.label, []).append(finite[-1])
    short = {
        label: label if len(label) <= LONGEST_LABEL else label[: LONGEST_LABEL - 1] + "…"
        for label in points
    }
    alike = Counter(short.values())
    ends = {}
    for label, last in points.items():
        xs, ys = zip(*last, strict=True)
        name = short[label] if alike[short[label]] == 1 else label
        ends[name] = _End(max(xs), math.fsum(ys) / len(ys), looks[label], label)
    if panel.level is not None:
        ends["chance"] = _End(math.inf, panel.level, None)
    return ends


def _scales(axes: Axes, panel: Panel) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    if panel.ticks:
        values = [*panel.ticks]
        axes.set_xscale("log")
        axes.set_xlim(values[0] / 1.12, values[-1] * 1.12)
        axes.set_xticks(values, [*panel.ticks.values()])
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        xs = [x for curve in panel.curves for x in curve.x]
        room = 0.02 * (max(xs) - min(xs)) or 1.0
        axes.set_xlim(min(xs) - room, max(xs) + room)
    if panel.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_minor_locator(NullLocator())
    locator = LogLocator(subs=(1.0, 2.0, 5.0)) if panel.log_y else MaxNLocator(5)
    axes.yaxis.set_major_locator(locator)
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:.12g}" if y < 1e6 else f"{y:.0e}")
    axes.set_ylim(*panel.y_range)


def _marks(axes: Axes, panel: Panel) -> None:
    for i, length in enumerate(reversed(panel.marks)):
        axes.axvline(length, **DASHED, zorder=1)
        axes.text(
            length,
            1 + (6 + MARK_ROOM * i) / panel.height,
            f"trained at {length_label(length)}",
            transform=axes.get_xaxis_transform(),
            ha="center",
            fontsize=10,
            color=MUTED,
        )
    if panel.level is not None:
        axes.axhline(panel.level, color=MUTED, linewidth=1, linestyle=(0, (1, 2)), zorder=1)


def _draw(axes: Axes, curve: Curve, points: bool) -> None:
    """Draw a curve; with `points`, each measurement has a marker."""
    of_curve: dict[str, Any] = {
        "color": COLOURS[curve.look.colour][0],
        "gid": series_id(curve.label),
    }
    axes.plot(
        curve.x,
        curve.y,
        linestyle=curve.look.dash,
        linewidth=1.8 if points else 1.2,
        marker=curve.look.marker if points else None,
        markersize=6.5,
        markeredgecolor=PAPER,
        markeredgewidth=0.8,
        clip_on=not points,  # keeps markers at the edge whole
        zorder=3,
        **of_curve,
    )
    if curve.rings:
        axes.plot(
            [curve.x[i] for i in curve.rings],
            [curve.y[i] for i in curve.rings],
            linestyle="none",
            marker="o",
            markersize=13,
            markerfacecolor="none",
            markeredgewidth=1.4,
            clip_on=False,
            zorder=4,
            **of_curve,
        )
    if any(map(math.isfinite, curve.low)):
        axes.fill_between(curve.x, curve.low, curve.high, alpha=0.16, linewidth=0, **of_curve)


def _labels(axes: Axes, ends: Mapping[str, _End], tall: float) -> None:
    """Write names right of the plotting area, with a marker and a line to the curve's end."""
    start, edge = axes.get_xlim()
    to_axes = axes.transAxes.inverted()
    pixels = (axes.transData.transform((start, end.y)) for end in ends.values())
    heights = [float(to_axes.transform(pixel)[1]) * tall for pixel in pixels]
    positions = spread(heights, LABEL_GAP, 0.0, tall)
    key = 1 + KEY_OFFSET / WIDTH
    for (label, end), position in zip(ends.items(), positions, strict=True):
        height = position / tall
        colour = COLOURS[end.look.colour][0] if end.look else MUTED
        gid = None if end.label is None else series_id(end.label)
        axes.annotate(
            "",
            xy=(min(end.x, edge), end.y),
            xytext=(key, height),
            textcoords="axes fraction",
            arrowprops=dict(_LEADER, color=colour, gid=gid),
            annotation_clip=False,
        )
        on_axes: dict[str, Any] = {"transform": axes.transAxes, "gid": gid}
        if end.look:
            look: dict[str, Any] = {"marker": end.look.marker, "markersize": 6, "clip_on": False}
            axes.plot([key], [height], color=colour, **look, **on_axes)
        axes.text(1 + LABEL_OFFSET / WIDTH, height, label, va="center", **on_axes)


def points_json(figure: Figure, curves: Iterable[Curve]) -> str:
    """The points of the curves of a panel that `draw_panel` drew, as JSON.

    A page shows their values under the pointer (fope_lab/report/render/report.js). It is a list of
    {"label", "points": [[x, y, text], …]}, with x and y from the upper left corner of the SVG in
    its own units, to a tenth. Points without a value are left out.
    """
    [axes] = figure.axes
    height = float(figure.bbox.height)
    drawn = []
    for curve in curves:
        places = axes.transData.transform([*zip(curve.x, curve.y, strict=True)])
        points = [
            [round(float(x), 1), round(height - float(y), 1), text]
            for (x, y), text in zip(places, curve.texts, strict=True)
            if math.isfinite(x) and math.isfinite(y)
        ]
        drawn.append({"label": curve.label, "points": points})
    return json.dumps(drawn, ensure_ascii=False, separators=(",", ":"))
