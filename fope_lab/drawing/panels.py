"""Figures of several plots side by side, for content that the panel of `plot.py` can't show."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fope_lab.drawing.heatmap import Heatmap, draw_cells
from fope_lab.drawing.palette import COLOURS, DASHES
from fope_lab.drawing.svg import STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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


def legend(figure: Figure, axes: Axes) -> None:
    """Show the labels of a plot's curves below the whole figure."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(4, len(labels)), frameon=False
    )
