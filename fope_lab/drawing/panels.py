"""Figures of several plots side by side, for what `plot.py`'s panel of curves does not show."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fope_lab.drawing.palette import COLOURS, DASHES
from fope_lab.drawing.svg import STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 300.0, 200.0  # points, of one plot with its labels


@contextlib.contextmanager
def panels(
    titles: Sequence[str],
    *,
    columns: int | None = None,
    width: float = WIDTH,
    height: float = HEIGHT,
) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure with a plot for each title, at most `columns` in a row, to be drawn in the block.

    `width` and `height` are those of one plot, in points. What is drawn in the block has the
    stand-in colours of svg.py.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    columns = min(columns or len(titles), len(titles))
    rows = -(-len(titles) // columns)
    with rc_context(STYLE):
        size = (columns * width / 72, rows * height / 72)
        figure = Figure(figsize=size, dpi=72, layout="constrained")
        found = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
        for axes, title in zip(found, titles, strict=False):
            axes.set_title(title, fontsize=11, loc="left")
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", linewidth=0.7)
            axes.set_axisbelow(True)
            axes.tick_params(length=3)
        for axes in found[len(titles) :]:
            axes.set_axis_off()
        yield figure, found[: len(titles)]


def curve(
    axes: Axes, x: Sequence[float], y: Sequence[float], slot: int, label: str | None = None
) -> None:
    """A thin curve in the colour and dash of a slot of the palette; see `legend` for its label."""
    axes.plot(
        x,
        y,
        color=COLOURS[slot % len(COLOURS)][0],
        linestyle=DASHES[slot // len(COLOURS) % len(DASHES)],
        linewidth=1.2,
        label=label,
    )


def legend(figure: Figure, axes: Axes) -> None:
    """The labels of a plot's curves, below the whole figure."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(4, len(labels)), frameon=False
    )
