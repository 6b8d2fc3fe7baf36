"""The colours of figures, and the conversion of a matplotlib figure to SVG or PDF.

Figures are drawn in the colours of a light page. In an SVG these become CSS variables, so that one
drawing works on light and dark pages; the page's style sheet sets the variables.

A label has the same look in every figure of a report. The presets that most sweeps compare have
fixed colours, so that reports can be compared side by side; any other label takes the next free
one. Colour is never the only cue: marker, dash and a name at the curve identify it too.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# (on white, on near-black), found by a search: a contrast of at least 3:1 with the page, and
# distinguishable with every kind of colour vision (tests/drawing/test_drawing.py measures both).
COLOURS: tuple[tuple[str, str], ...] = (
    ("#172396", "#89a8fe"),  # blue
    ("#e8730b", "#bb5f2c"),  # orange
    ("#5ea364", "#8fe8a1"),  # green
    ("#8d959d", "#ecf4fd"),  # grey
    ("#560232", "#cc347b"),  # purple
    ("#664a00", "#f5b94d"),  # ochre
    ("#9a49e7", "#6358ac"),  # violet
    ("#005c71", "#56a8bf"),  # cyan
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
DASHES = ("-", "--", ":", "-.")
FAMILIAR = ("rope", "fope", "alibi", "nope", "kerple", "fire", "yarn", "p-rope")


@dataclass(frozen=True)
class Look:
    """The appearance of a curve; `colour` is an index into COLOURS."""

    colour: int
    marker: str
    dash: str


def assign_looks(labels: Iterable[str]) -> dict[str, Look]:
    """Assign a look to every label; up to len(COLOURS) · len(DASHES) labels are distinct."""
    labels = list(dict.fromkeys(labels))
    slots = {label: FAMILIAR.index(label) for label in labels if label in FAMILIAR}
    free = (i for i in range(len(labels) + len(COLOURS)) if i not in slots.values())
    count = len(COLOURS)
    looks = {}
    for label in labels:
        slot = slots[label] if label in slots else next(free)
        dash = DASHES[slot // count % len(DASHES)]
        looks[label] = Look(slot % count, MARKERS[(slot + slot // count) % len(MARKERS)], dash)
    return looks


INK, MUTED, GRID, PAPER = "#1c2024", "#646d78", "#dfe3e8", "#ffffff"
_NAMES = ("--ink", "--muted", "--grid", "--paper")
_VARIABLES = dict(zip((INK, MUTED, GRID, PAPER), _NAMES, strict=True)) | {
    light: f"--series-{i}" for i, (light, _) in enumerate(COLOURS)
}
_SERIES = "series:"
_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_LONG_NUMBER = re.compile(r"-?\d+\.\d{2,}(?![\d.]*e)")
"""A coordinate of a path with more digits than a tenth of a pixel needs."""

DASHED: dict[str, Any] = {"color": MUTED, "linewidth": 1, "linestyle": (0, (4, 3))}
"""The look of lines that mark a place, such as the trained length."""

PLAIN = {
    False: f"--ink: {INK}; --muted: {MUTED}; --grid: {GRID}; --paper: {PAPER};",
    True: "--ink: #e8ebee; --muted: #98a1ab; --grid: #333a42; --paper: #14171b;",
}
"""The colours of a standalone file on light (False) and dark (True) pages."""

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: selectable, searchable, in the page's own font
    "svg.hashsalt": "fope-lab",
    "path.simplify_threshold": 1.0,  # points that move a line by less than a pixel are left out
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
    those of `plot.points_json`, which become the attribute data-points.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    buffer = io.BytesIO()
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with rc_context(STYLE):  # some settings take effect when a figure is created, others only here
        FigureCanvasSVG(figure).print_svg(buffer, metadata=metadata)
    root = ET.fromstring(buffer.getvalue())
    for child in root.findall(f"{_SVG}metadata"):
        root.remove(child)
    referenced = set(re.findall(r'(?:url\(|href=")#([\w.-]+)', buffer.getvalue().decode()))
    for element in root.iter():
        _rewrite(element, name, referenced)
    root.attrib.pop("version", None)
    for attribute, inches in zip(("width", "height"), figure.get_size_inches(), strict=True):
        root.set(attribute, f"{inches * 72:g}")
    if points is not None:
        root.set("data-points", points)
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title {name}-desc")
    for position, (tag, text) in enumerate((("title", title), ("desc", description))):
        element = ET.Element(tag, {"id": f"{name}-{tag}"})
        element.text = text
        root.insert(position, element)
    for element in root.iter():  # HTML parsers know neither prefixes nor self-closed elements
        element.tag = element.tag.removeprefix(_SVG)
    root.set("xmlns", _SVG[1:-1])
    text = ET.tostring(root, encoding="unicode", short_empty_elements=False)
    return re.sub(r">\n *<", "><", text)


def standalone_svg(figure: Figure, title: str, description: str) -> str:
    """Return `figure` as a standalone SVG file that follows the reader's light or dark mode."""
    text = inline_svg(figure, "figure", title, description)
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
    """Make ids unique by the figure's name, colours variables and paths short; drop ids that nobody
    reads."""
    identifier = element.attrib.pop("id", "")
    if identifier.startswith(_SERIES):
        element.set("data-series", identifier.removeprefix(_SERIES))
    elif identifier in referenced:
        element.set("id", f"{name}-{identifier}")
    if _HREF in element.attrib:
        element.set("href", f"#{name}-{element.attrib.pop(_HREF)[1:]}")
    if clip := element.get("clip-path"):
        element.set("clip-path", clip.replace("url(#", f"url(#{name}-"))
    if style := element.get("style"):
        for colour, variable in _VARIABLES.items():
            style = style.replace(colour, f"var({variable})")
        element.set("style", without_family(style))
    if path := element.get("d"):
        short = _LONG_NUMBER.sub(lambda number: f"{round(float(number[0]), 1):g}", path)
        element.set("d", " ".join(short.split()))


def without_family(style: str) -> str:
    """Remove matplotlib's font family from a style, so that the page's own font applies. Before
    matplotlib 3.11, the family is the end of `font: 700 11px 'DejaVu Sans', …`."""
    style = re.sub(r"font-family: [^;]*;? ?", "", style)
    weight = r"font: (?:[a-z]+ )*(\d{3}) ([\d.]+px)[^;]*"
    style = re.sub(weight, r"font-weight: \1; font-size: \2", style)
    return re.sub(r"font: (?:[a-z]+ )*([\d.]+px)[^;]*", r"font-size: \1", style)


def pdf_page(figure: Figure, title: str) -> bytes:
    """Return `figure` as a PDF file of one page: text stays text, and equal figures are equal."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_pdf import FigureCanvasPdf

    buffer = io.BytesIO()
    metadata = {"Title": title, "CreationDate": None, "Creator": None, "Producer": None}
    # Type 42 embeds the font as it is; many venues refuse the default, type 3.
    with rc_context({**STYLE, "pdf.fonttype": 42}):
        FigureCanvasPdf(figure).print_pdf(buffer, metadata=metadata)
    return buffer.getvalue()
