"""Converts a matplotlib figure to a PDF page in the colours of a light page, for a paper.

Figures are drawn in the placeholder colours of svg.py; here they become the plain colours.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fope_lab.drawing.svg import GRID, INK, MUTED, PAPER, STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {INK: "#000000", MUTED: "#5a626c", GRID: "#dfe3e8", PAPER: "#ffffff"}
"""What a placeholder is on paper; the colours of curves are already those of a light page."""
PROPERTIES = ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor")
"""The properties of matplotlib's artists that hold a colour."""


def pdf_page(figure: Figure, title: str) -> bytes:
    """Return `figure` as a PDF file of one page: text stays text, and equal figures are equal."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_pdf import FigureCanvasPdf

    buffer = io.BytesIO()
    metadata = {"Title": title, "CreationDate": None, "Creator": None, "Producer": None}
    # Type 42 embeds the font as it is; many venues refuse the default, type 3.
    with rc_context({**STYLE, "pdf.fonttype": 42}), _on_paper(figure):
        FigureCanvasPdf(figure).print_pdf(buffer, metadata=metadata)
    return buffer.getvalue()


@contextlib.contextmanager
def _on_paper(figure: Figure) -> Iterator[None]:
    """Give a figure the colours of COLOURS, and its own back at the end."""
    changed: list[tuple[Any, str, Any]] = []
    for artist in figure.findobj():
        for name in PROPERTIES:
            get = getattr(artist, f"get_{name}", None)
            colour = None if get is None else _placeholder(get())
            if colour is not None:
                changed.append((artist, name, colour))
    for artist, name, colour in changed:
        getattr(artist, f"set_{name}")(COLOURS[colour])
    try:
        yield
    finally:
        for artist, name, colour in changed:
            getattr(artist, f"set_{name}")(colour)


def _placeholder(colour: Any) -> str | None:
    """The placeholder that a colour is, in any of matplotlib's ways to hold one; else None."""
    from matplotlib.colors import to_hex, to_rgba_array

    try:
        rows = to_rgba_array(colour)
    except (ValueError, TypeError):  # "auto", "inherit", a mapping to colours
        return None
    found = {to_hex(row) for row in rows if row[3] == 1}
    return next(iter(found)) if len(found) == 1 and found <= COLOURS.keys() else None
