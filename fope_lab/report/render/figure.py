"""The structure of a report's figure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A figure: an <svg> element for each panel, and the notes below them.

    The panels of a `natural` figure keep their own sizes; others fill the width of the page.
    """

    title: str
    drawings: tuple[str, ...]
    notes: tuple[str, ...]
    natural: bool = False
