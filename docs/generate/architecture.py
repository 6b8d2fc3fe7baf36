"""The drawing of the whole, docs/architecture.svg, whose colours are those of the page."""

from __future__ import annotations

from docs.generate.shipped import ROOT


def drawing(_: str) -> str:
    """The drawing as an inline element on one line."""
    text = (ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8")
    return text.replace("\n", " ")
