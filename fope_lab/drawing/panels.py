"""Figures of several plots side by side, for content that the panel of `plot.py` can't show."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

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
    """Create a figure with a plot for each title, at most `columns` in a row, and yield it to be
    drawn in the `with` block.

    `width` and `height` are those of a single plot, in points. Drawings in the block have the
    placeholder colours of svg.py.
    """
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
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", linewidth=0.7)
            axes.set_axisbelow(True)
            axes.tick_params(length=3)
        for axes in plots[len(titles) :]:
            axes.set_axis_off()
        yield figure, plots[: len(titles)]


def curve(
    axes: Axes, x: Sequence[float], y: Sequence[float], slot: int, label: str | None = None
) -> None:
    """Draw a thin curve in the colour and dash of a palette slot; `legend` shows its label."""
    axes.plot(
        x,
        y,
        color=COLOURS[slot % len(COLOURS)][0],
        linestyle=DASHES[slot // len(COLOURS) % len(DASHES)],
        linewidth=1.2,
        label=label,
    )


def legend(figure: Figure, axes: Axes) -> None:
    """Show the labels of a plot's curves below the whole figure."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(4, len(labels)), frameon=False
    )
