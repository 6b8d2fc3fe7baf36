"""The structure of a report's figure, and a panel of it in the formats that people use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from fope_lab.drawing.plot import Curve, points_json
from fope_lab.drawing.svg import inline_svg, pdf_page, standalone_svg

if TYPE_CHECKING:
    import matplotlib.figure


@dataclass(frozen=True)
class Drawing:
    """A panel of a figure.

    `draw` makes the matplotlib figure, in the placeholder colours of fope_lab/drawing/svg.py, each
    time that the panel is needed: a page of 300 panels would not fit into memory otherwise. `name`
    is unique within a page, and `words` say what the panel shows to people who can't see it.
    `curves` are those whose values a page shows under the pointer.
    """

    draw: Callable[[], matplotlib.figure.Figure]
    name: str
    title: str
    words: str
    curves: tuple[Curve, ...] = ()

    def inline(self) -> str:
        """The panel as an <svg> element of a page."""
        figure = self.draw()
        points = points_json(figure, self.curves) if self.curves else None
        return inline_svg(figure, self.name, self.title, self.words, points)

    def svg(self) -> str:
        """The panel as a file of its own, which follows the reader's light or dark mode."""
        return standalone_svg(self.draw(), self.title, self.words)

    def pdf(self) -> bytes:
        """The panel as a PDF page of its size, in the colours of a light page."""
        return pdf_page(self.draw(), self.title)


@dataclass(frozen=True)
class Figure:
    """A figure: its panels, and the notes below them.

    The panels of a `natural` figure keep their own sizes; others fill the width of the page.
    `numbers` are what was found, each with its name in words.
    """

    title: str
    panels: tuple[Drawing, ...]
    notes: tuple[str, ...]
    natural: bool = False
    numbers: tuple[tuple[str, str], ...] = ()

    @cached_property
    def drawings(self) -> tuple[str, ...]:
        """Each panel as an <svg> element of a page."""
        return tuple(panel.inline() for panel in self.panels)
