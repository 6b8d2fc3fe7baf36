"""Figures for content that the panel of `plot.py` can't show: heat maps, and several plots side by
side.

A heat map has a colour for each pair of a row and a column, from the page's own colour at 0 to the
palette's first at full strength at 1, so that the same drawing works on light and dark pages. NaN
leaves a gap, and the number itself is written if it fits.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fope_lab.drawing.svg import COLOURS, DASHES, GRID, PAPER, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CELL_WIDTH, CELL_HEIGHT = 46.0, 24.0  # in points, for a cell with room for its number
LEFT, RIGHT, BOTTOM, TOP = 64.0, 72.0, 46.0, 26.0
KEY_GAP, KEY_WIDTH, KEY_STEPS = 18.0, 12.0, 24
CHARACTER = 6.4
"""The width of a character of a title, in points."""
SMALLEST = 3.0
LARGEST = 460.0
"""The largest side of the plotting area, in points; more rows or columns make smaller cells."""
FEWEST_LABELS = 10
SHADES = 200
"""The number of shades of the colour, more than an eye can distinguish."""


@dataclass(frozen=True)
class Heatmap:
    """The content of a heat map: `values` (rows, columns) in [`low`, `high`], row 0 at the top."""

    title: str
    x_label: str
    y_label: str
    x_ticks: tuple[str, ...]
    y_ticks: tuple[str, ...]
    values: NDArray[np.float64]
    low: float = 0.0
    high: float = 1.0


def draw_heatmap(heatmap: Heatmap) -> Figure:
    """Draw a heat map as a matplotlib figure in the colours of svg.py."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    rows, columns = heatmap.values.shape
    wide = min(CELL_WIDTH, max(SMALLEST, LARGEST / columns))
    tall = min(CELL_HEIGHT, max(SMALLEST, LARGEST / rows))
    body = wide * columns
    width = LEFT + max(body + RIGHT, CHARACTER * len(heatmap.title))
    height = BOTTOM + tall * rows + TOP
    with rc_context(STYLE):
        figure = Figure(figsize=(width / 72, height / 72), dpi=72)
        box = (LEFT / width, BOTTOM / height, body / width, tall * rows / height)
        draw_cells(figure.add_axes(box), heatmap, numbers=wide >= CELL_WIDTH)
        key = figure.add_axes(((LEFT + body + KEY_GAP) / width, box[1], KEY_WIDTH / width, box[3]))
        _colour(key, (np.arange(KEY_STEPS)[:, None] + 0.5) / KEY_STEPS)
        key.set(xlim=(0, 1), ylim=(0, KEY_STEPS), xticks=[])
        key.set_yticks([0, KEY_STEPS], [f"{heatmap.low:g}", f"{heatmap.high:g}"])
        key.yaxis.tick_right()
    return figure


def draw_cells(axes: Axes, heatmap: Heatmap, *, numbers: bool) -> None:
    """Draw a heat map in the axes of a figure that was created under STYLE."""
    rows, columns = heatmap.values.shape
    shares = np.clip((heatmap.values - heatmap.low) / (heatmap.high - heatmap.low or 1.0), 0, 1)
    _colour(axes, shares)
    for (row, column), value in np.ndenumerate(heatmap.values) if numbers else ():
        if not math.isnan(value):
            axes.text(
                column + 0.5,
                row + 0.5,
                f"{value:.2f}",
                ha="center",
                va="center",
                fontsize=9,
                color=None if shares[row, column] < 0.55 else PAPER,  # ink on a weak colour
            )
    axes.set(xlim=(0, columns), ylim=(rows, 0), xlabel=heatmap.x_label, ylabel=heatmap.y_label)
    for axis, ticks in ((axes.xaxis, heatmap.x_ticks), (axes.yaxis, heatmap.y_ticks)):
        shown = range(0, len(ticks), max(1, math.ceil(len(ticks) / FEWEST_LABELS)))
        axis.set_ticks([place + 0.5 for place in shown], [ticks[place] for place in shown])
    if heatmap.title:
        axes.set_title(heatmap.title, fontsize=11, loc="left")


def _colour(axes: Axes, shares: NDArray[np.float64]) -> None:
    """Colour cells by their share (rows, columns); NaN stays empty."""
    # One path a shade, one rectangle a run: drawing thousands of patches takes minutes.
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    shades = np.rint(np.nan_to_num(shares) * SHADES).astype(int)
    for shade in np.unique(shades[shades > 0]).tolist():
        # +1 where a run of the shade begins, −1 where it ends
        edges = np.diff((shades == shade).astype(int), axis=1, prepend=0, append=0)
        rows, left = np.nonzero(edges > 0)
        right = np.nonzero(edges < 0)[1]
        corners = [(left, rows), (right, rows), (right, rows + 1), (left, rows + 1), (left, rows)]
        vertices = np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)
        codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(rows)
        axes.add_patch(
            PathPatch(
                Path(vertices.reshape(-1, 2), codes),
                facecolor=COLOURS[0][0],
                alpha=shade / SHADES,
                linewidth=0,
                antialiased=False,  # avoids seams between neighbours
            )
        )
    axes.tick_params(length=0)
    axes.spines[:].set_color(GRID)


WIDTH, HEIGHT = 300.0, 200.0  # in points, for a plot with its labels


@contextlib.contextmanager
def panels(
    titles: Sequence[str],
    *,
    columns: int | None = None,
    width: float = WIDTH,
    height: float = HEIGHT,
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Yield a figure with a plot for each title, at most `columns` in a row, to be drawn in the
    `with` block, in the colours of svg.py. `width` and `height` of a plot are in points."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    columns = min(columns or len(titles), len(titles))
    rows = -(-len(titles) // columns)
    with rc_context(STYLE):
        size = (columns * width / 72, rows * height / 72)
        figure = Figure(figsize=size, dpi=72, layout="constrained")
        plots = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
        for axes, title in zip(plots, titles, strict=False):
            axes.set_title(title, fontsize=11, loc="left")
            open_frame(axes)
        for axes in plots[len(titles) :]:
            axes.set_axis_off()
        yield figure, plots[: len(titles)]


def open_frame(axes: Axes) -> None:
    """Draw only the left and the lower edge of a plot, and lines of a grid from left to right."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(length=3)


def curve(
    axes: Axes, y: NDArray[Any], slot: int, label: str | None = None, x: ArrayLike | None = None
) -> None:
    """Draw a thin curve of y (n,) over x (n,), 0, 1, … by default, in the colour and dash of a
    palette slot. `legend` shows the label."""
    axes.plot(
        np.arange(len(y)) if x is None else x,
        y,
        color=COLOURS[slot % len(COLOURS)][0],
        linestyle=DASHES[slot // len(COLOURS) % len(DASHES)],
        linewidth=1.2,
        label=label,
    )


def cells(
    axes: Axes,
    values: NDArray[Any],
    x_label: str,
    y_label: str,
    high: float = 1.0,
    *,
    numbers: bool = False,
) -> None:
    """Draw values (rows, columns) from 0 to `high` as coloured cells, counted from 0 on both axes;
    with `numbers`, each has its value."""
    rows, columns = (tuple(map(str, range(size))) for size in values.shape)
    exact = np.asarray(values, np.float64)
    heatmap = Heatmap("", x_label, y_label, columns, rows, exact, high=high)
    axes.grid(visible=False)
    draw_cells(axes, heatmap, numbers=numbers)


def legend(figure: Figure, axes: Axes, columns: int = 4) -> None:
    """Show the labels of a plot's curves below the whole figure."""
    handles, labels = axes.get_legend_handles_labels()
    columns = min(columns, len(labels))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
