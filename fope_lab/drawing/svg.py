"""Converts a matplotlib figure to inline SVG with the page's colours, unique ids and a title.

Figures are drawn in placeholder colours. They become CSS variables here, so that the same drawing
works on light and dark pages; the page's style sheet sets the values of the variables.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

from fope_lab.drawing.compact import compact
from fope_lab.drawing.palette import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, GRID, PAPER = "#010101", "#010102", "#010103", "#010104"  # placeholders
_VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--grid", PAPER: "--paper"} | {
    light: f"--series-{i}" for i, (light, _) in enumerate(COLOURS)
}
_COLOUR = re.compile(r"var\((--[\w-]+)\)")
_STANDALONE = "figure"
"""The name of the drawing in a standalone file, with which its ids begin."""
_SERIES = "series:"
_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"

DASHED: dict[str, Any] = {"color": MUTED, "linewidth": 1, "linestyle": (0, (4, 3))}
"""The look of lines that mark a place, such as the trained length."""

PLAIN = {
    False: "--ink: #1c2024; --muted: #646d78; --grid: #dfe3e8; --paper: #ffffff;",
    True: "--ink: #e8ebee; --muted: #98a1ab; --grid: #333a42; --paper: #14171b;",
}
"""The colours of a standalone file on light (False) and dark (True) pages."""

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: selectable, searchable, in the page's own font
    "svg.hashsalt": "fope-lab",
    "font.family": "sans-serif",
    "font.size": 11,
    "text.parse_math": False,  # labels are data: a $ in one is a $
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": GRID,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}


def series_id(label: str) -> str:
    """The gid of all that belongs to a curve: in the page it is the attribute data-series."""
    return f"{_SERIES}{label}"


def inline_svg(
    figure: Figure, name: str, title: str, description: str, points: str | None = None
) -> str:
    """Return `figure` as an <svg> element for a page in which `name` is unique.

    Its natural size is that of the figure, one pixel per point; a page may scale it. `points` are
    those of pointer.py, which become the attribute data-points.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    buffer = io.BytesIO()
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with rc_context(STYLE):  # some settings take effect when a figure is created, others only here
        FigureCanvasSVG(figure).print_svg(buffer, metadata=metadata)
    root = ET.fromstring(buffer.getvalue())
    for child in list(root):
        if child.tag == f"{_SVG}metadata":
            root.remove(child)
    referenced = set(re.findall(r'(?:url\(|href=")#([\w.-]+)', buffer.getvalue().decode()))
    for element in root.iter():
        _rewrite(element, name, referenced)
    root.attrib.pop("version", None)
    for attribute, inches in zip(("width", "height"), figure.get_size_inches(), strict=True):
        root.set(attribute, f"{inches * 72:g}")
    compact(root)
    if points is not None:
        root.set("data-points", points)
    _describe(root, name, title, description)
    return _serialise(root)


def inline_saved(saved: str, name: str, title: str, description: str) -> str | None:
    """Return the content of a file of `standalone_svg` as `inline_svg` returns its figure.

    Returns None for a file that a page can't show: it is damaged, or has colours of another
    version. Nothing is drawn, so this takes a hundredth of the time.
    """
    try:
        root = ET.fromstring(saved)
    except ET.ParseError:
        return None
    own = [e for e in root if e.tag in (f"{_SVG}title", f"{_SVG}desc", f"{_SVG}style")]
    for element in own:
        root.remove(element)
    saved_colours = ET.tostring(root, encoding="unicode")
    if not set(_COLOUR.findall(saved_colours)) <= {*_VARIABLES.values()}:
        return None
    for element in root.iter():
        for attribute, value in element.attrib.items():
            if attribute in ("id", "href", "clip-path"):
                element.set(attribute, value.replace(f"{_STANDALONE}-", f"{name}-", 1))
    compact(root)
    _describe(root, name, title, description)
    return _serialise(root)


def _describe(root: ET.Element, name: str, title: str, description: str) -> None:
    """Say what a drawing shows, to people who can't see it."""
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title {name}-desc")
    for position, (tag, text) in enumerate((("title", title), ("desc", description))):
        element = ET.Element(f"{_SVG}{tag}", {"id": f"{name}-{tag}"})
        element.text = text
        root.insert(position, element)


def standalone_svg(figure: Figure, title: str, description: str) -> str:
    """Return `figure` as a standalone SVG file that follows the reader's light or dark mode."""
    text = inline_svg(figure, _STANDALONE, title, description)
    rules = (
        f"svg {{ {PLAIN[False]} {style_variables(dark=False)} background: var(--paper); "
        "font-family: system-ui, sans-serif; } "
        f"@media (prefers-color-scheme: dark) {{ svg {{ {PLAIN[True]} "
        f"{style_variables(dark=True)} }} }}"
    )
    end = text.index(">") + 1
    return f"{text[:end]}<style>{rules}</style>{text[end:]}"


def style_variables(dark: bool) -> str:
    """Return the values of the curves' CSS variables for a light or dark page."""
    return " ".join(f"--series-{i}: {pair[dark]};" for i, pair in enumerate(COLOURS))


def _rewrite(element: ET.Element, name: str, referenced: set[str]) -> None:
    """Prefix referenced ids with the figure's name, drop other ids but those of series, and insert
    colour variables."""
    identifier = element.attrib.pop("id", None)
    if identifier is not None and identifier.startswith(_SERIES):
        element.set("data-series", identifier.removeprefix(_SERIES))
    elif identifier in referenced:
        element.set("id", f"{name}-{identifier}")
    if _HREF in element.attrib:
        element.set("href", f"#{name}-{element.attrib.pop(_HREF)[1:]}")
    for attribute, value in element.attrib.items():
        if attribute == "clip-path":
            element.set(attribute, value.replace("url(#", f"url(#{name}-"))
    style = element.get("style")
    if style is not None:
        for colour, variable in _VARIABLES.items():
            style = style.replace(colour, f"var({variable})")
        element.set("style", without_family(style))


def without_family(style: str) -> str:
    """Remove matplotlib's font family from a style, so that the page's own font applies.

    Before matplotlib 3.11, the family is the end of `font: 700 11px 'DejaVu Sans', …`.
    """
    style = re.sub(r"font-family: [^;]*;? ?", "", style)
    weight = r"font: (?:[a-z]+ )*(\d{3}) ([\d.]+px)[^;]*"
    style = re.sub(weight, r"font-weight: \1; font-size: \2", style)
    return re.sub(r"font: (?:[a-z]+ )*([\d.]+px)[^;]*", r"font-size: \1", style)


def _serialise(root: ET.Element) -> str:
    """Return XML that HTML parsers read alike: without prefixes and self-closed elements."""
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
    root.set("xmlns", _SVG[1:-1])
    return ET.tostring(root, encoding="unicode", short_empty_elements=False)
