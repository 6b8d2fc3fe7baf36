"""What a figure of a report is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A figure: an <svg> element for each panel, and what has to be said under them.

    Panels of a `natural` figure have their own sizes; others are as wide as there is room.
    """

    title: str
    drawings: tuple[str, ...]
    notes: tuple[str, ...]
    natural: bool = False
