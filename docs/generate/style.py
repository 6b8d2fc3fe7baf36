"""The style sheet of figures, with the colours of the report for light and dark pages."""

from __future__ import annotations

from pathlib import Path

from fope_lab.drawing.svg import PLAIN, style_variables


def sheet() -> str:
    """The colours as CSS variables, and docs/site.css."""
    light, dark = (f"{PLAIN[is_dark]} {style_variables(is_dark)}" for is_dark in (False, True))
    rules = Path(__file__).parents[1].joinpath("site.css").read_text(encoding="utf-8")
    return (
        f":root {{ {light} }}\n[data-md-color-scheme=slate] {{ {dark}"
        f" --paper: var(--md-default-bg-color); }}\n{rules}"
    )
