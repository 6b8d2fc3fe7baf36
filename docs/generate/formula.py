"""Formulas as inline SVG, set by matplotlib: the page needs no script and no font for them."""

from __future__ import annotations

import functools
import html
import io
import re
from collections.abc import Mapping
from pathlib import Path

import yaml

INK = "#010101"  # becomes the colour of the text around the formula
PAPER = "fill: #ffffff"  # of the rectangle behind the formula, which a dark page must not show


@functools.cache
def formulas() -> Mapping[str, str]:
    """LaTeX by the name of a mechanism or transform, from docs/formulas.yaml."""
    path = Path(__file__).parents[1] / "formulas.yaml"
    read: dict[str, str] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {name: " ".join(latex.split()) for name, latex in read.items()}


def formula(name: str) -> str | None:
    """The formula of a mechanism or transform as an <svg>, or None if it has none."""
    latex = formulas().get(name)
    if latex is None:
        return None
    from matplotlib import rc_context
    from matplotlib.font_manager import FontProperties
    from matplotlib.mathtext import math_to_image

    buffer = io.BytesIO()
    with rc_context({"mathtext.fontset": "stix", "svg.hashsalt": name}):
        size = FontProperties(size=15)
        math_to_image(f"${latex}$", buffer, prop=size, dpi=72, format="svg", color=INK)
    svg = re.search(r"<svg.*</svg>", buffer.getvalue().decode(), flags=re.DOTALL)
    assert svg is not None
    text = re.sub(r"<metadata>.*?</metadata>", "", svg[0], flags=re.DOTALL).replace("\n", " ")
    text = text.replace(INK, "currentColor").replace(PAPER, "fill: none")
    text = text.replace("xlink:href", "href")
    # The glyphs of one formula are its own, whatever else stands on the page.
    text = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>formula-{name}-", text)
    label = html.escape(latex, quote=True)
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
