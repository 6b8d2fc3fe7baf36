"""A heat map: a number for each pair of a row and a column, as a colour and, if it fits, in words.

Numbers run from 0, the paper's own colour, to 1, the first colour of the palette in full, so that
one drawing serves light and dark paper. NaN leaves a gap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fope_lab.drawing.palette import COLOURS
from fope_lab.drawing.svg import GRID, PAPER, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CELL_WIDTH, CELL_HEIGHT = 46.0, 24.0  # points, of a cell that has room for its number
LEFT, RIGHT, BOTTOM, TOP = 64.0, 14.0, 46.0, 26.0
SMALLEST = 3.0
LARGEST = 460.0
"""Of the plotting area, in points: more rows or columns than fit make cells smaller."""
FEWEST_LABELS = 10


@dataclass(frozen=True)
class Heatmap:
    """`values` (rows, columns) in [`low`, `high`], the first row at the top."""

    title: str
    x_label: str
    y_label: str
    x_ticks: tuple[str, ...]
    y_ticks: tuple[str, ...]
    values: NDArray[np.float64]
    low: float = 0.0
    high: float = 1.0
    form: str = ".2f"


def draw_heatmap(heatmap: Heatmap) -> Figure:
    """The heat map as a matplotlib figure in the stand-in colours of svg.py."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    rows, columns = heatmap.values.shape
    wide = min(CELL_WIDTH, max(SMALLEST, LARGEST / columns))
    tall = min(CELL_HEIGHT, max(SMALLEST, LARGEST / rows))
    width, height = LEFT + wide * columns + RIGHT, BOTTOM + tall * rows + TOP
    with rc_context(STYLE):
        figure = Figure(figsize=(width / 72, height / 72), dpi=72)
        box = (LEFT / width, BOTTOM / height, wide * columns / width, tall * rows / height)
        draw_cells(figure.add_axes(box), heatmap, numbers=wide >= CELL_WIDTH)
    return figure


def draw_cells(axes: Axes, heatmap: Heatmap, *, numbers: bool) -> None:
    """The heat map in axes of a figure that is being made under STYLE."""
    from matplotlib.patches import Rectangle

    rows, columns = heatmap.values.shape
    span = heatmap.high - heatmap.low or 1.0
    for row in range(rows):
        for column in range(columns):
            value = float(heatmap.values[row, column])
            if math.isnan(value):
                continue
            share = min(max((value - heatmap.low) / span, 0.0), 1.0)
            axes.add_patch(
                Rectangle((column, row), 1, 1, facecolor=COLOURS[0][0], alpha=share, linewidth=0)
            )
            if numbers:
                # On a colour that is half there the text keeps to the ink of the page.
                axes.text(
                    column + 0.5,
                    row + 0.5,
                    format(value, heatmap.form),
                    ha="center",
                    va="center",
                    fontsize=9,
                    color=None if share < 0.55 else PAPER,
                )
    axes.set_xlim(0, columns)
    axes.set_ylim(rows, 0)
    _label(axes.xaxis, heatmap.x_ticks)
    _label(axes.yaxis, heatmap.y_ticks)
    axes.set_xlabel(heatmap.x_label)
    axes.set_ylabel(heatmap.y_label)
    if heatmap.title:
        axes.set_title(heatmap.title, fontsize=11, loc="left")
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_color(GRID)


def _label(axis: object, ticks: Sequence[str]) -> None:
    """As many labels as have room."""
    every = max(1, math.ceil(len(ticks) / max(FEWEST_LABELS, 1)))
    places = range(0, len(ticks), every)
    axis.set_ticks([place + 0.5 for place in places], [ticks[p] for p in places])  # type: ignore[attr-defined]
