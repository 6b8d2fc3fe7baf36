"""Heat maps: each number in its place and colour, on light and on dark paper."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import rc_context
from matplotlib.figure import Figure

from fope_lab.drawing.panels import SHADES, Heatmap, draw_cells, draw_heatmap
from fope_lab.drawing.svg import COLOURS, PAPER, PLAIN, STYLE, inline_svg, standalone_svg


def heatmap(values: list[list[float]], **changes: object) -> Heatmap:
    found = np.array(values, np.float64)
    fields: dict[str, object] = {
        "title": "a title",
        "x_label": "length",
        "y_label": "depth",
        "x_ticks": tuple(f"x{i}" for i in range(found.shape[1])),
        "y_ticks": tuple(f"y{i}" for i in range(found.shape[0])),
        "values": found,
    }
    return Heatmap(**{**fields, **changes})  # type: ignore[arg-type]


def cells_of(drawn: Heatmap) -> dict[tuple[int, int], float]:
    """(row, column) → how much of the colour."""
    found: dict[tuple[int, int], float] = {}
    axes = Figure().add_subplot()
    draw_cells(axes, drawn, numbers=False)
    for patch in axes.patches:
        for box in patch.get_path().vertices.reshape(-1, 5, 2):
            (left, top), (right, bottom) = box.min(axis=0).astype(int), box.max(axis=0).astype(int)
            assert bottom == top + 1
            for column in range(left, right):
                assert (top, column) not in found
                found[top, column] = float(patch.get_alpha())
    return found


@settings(max_examples=15)
@given(
    st.lists(st.lists(st.floats(-1, 3), min_size=3, max_size=3), min_size=1, max_size=5),
    st.floats(-1, 0.9),
)
def test_a_colour_is_a_number_and_beyond_the_scale_its_end(
    values: list[list[float]], low: float
) -> None:
    found = cells_of(heatmap(values, low=low, high=1.0))
    for row, line in enumerate(values):
        for column, value in enumerate(line):
            expected = min(max((value - low) / (1.0 - low), 0.0), 1.0)
            assert found.get((row, column), 0.0) == pytest.approx(expected, abs=0.51 / SHADES)


def test_what_is_not_a_number_is_a_gap() -> None:
    found = cells_of(heatmap([[0.5, math.nan], [math.nan, 1.0]]))
    assert found == {(0, 0): 0.5, (1, 1): 1.0}


def words_of(svg: str) -> list[str]:
    texts = [e for e in ET.fromstring(svg).iter() if e.tag.rpartition("}")[2] == "text"]
    return ["".join(element.itertext()) for element in texts]


def test_the_drawing_says_what_its_colours_mean() -> None:
    drawn = heatmap([[0.0, 0.25], [0.5, 1.0]], low=0.0, high=1.0)
    words = words_of(inline_svg(draw_heatmap(drawn), "f", "t", "d"))
    numbers = [word for word in words if re.fullmatch(r"\d\.\d\d", word)]
    assert numbers == ["0.00", "0.25", "0.50", "1.00"]
    assert {"x0", "x1", "y0", "y1", "length", "depth", "a title"} <= set(words)
    assert {"0", "1"} <= set(words)  # the key's ends
    assert {"0", "4"} <= set(
        words_of(inline_svg(draw_heatmap(heatmap([[1.0]], high=4.0)), "f", "t", "d"))
    )


def test_a_map_of_many_cells_fits_and_has_no_numbers() -> None:
    drawn = draw_heatmap(heatmap(np.zeros((200, 100)).tolist()))
    width, height = drawn.get_size_inches() * 72
    assert width < 640
    assert height < 700
    words = words_of(inline_svg(drawn, "f", "t", "d"))
    assert "0.00" not in words
    assert len(words) < 35


def test_a_long_title_is_not_cut() -> None:
    narrow = draw_heatmap(heatmap([[1.0]]))
    wide = draw_heatmap(heatmap([[1.0]], title="a title that is longer than a map of one column"))
    assert wide.get_size_inches()[0] > narrow.get_size_inches()[0]
    assert wide.get_size_inches()[0] * 72 > 6 * 47


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_numbers_can_be_read_on_every_colour(dark: bool) -> None:
    """At least 3:1 of each number against its cell (WCAG 2, graphics and large text)."""
    named = dict(re.findall(r"(--\w+): (#\w+)", PLAIN[dark]))
    paper, ink, full = named["--paper"], named["--ink"], COLOURS[0][dark]
    values = np.linspace(0, 1, 41)
    axes = Figure().add_subplot()
    with rc_context(STYLE):
        draw_cells(axes, heatmap([values.tolist()]), numbers=True)
    assert len(axes.texts) == len(values)
    for value, number in zip(values, axes.texts, strict=True):
        assert number.get_text() == f"{value:.2f}"
        text = paper if number.get_color() == PAPER else ink
        mixed = [
            round(int(paper[i : i + 2], 16) * (1 - value) + int(full[i : i + 2], 16) * value)
            for i in (1, 3, 5)
        ]
        assert _contrast(text, "#" + "".join(f"{part:02x}" for part in mixed)) >= 3


def test_a_file_of_its_own_has_a_size_and_both_papers() -> None:
    root = ET.fromstring(standalone_svg(draw_heatmap(heatmap([[1.0]])), "t", "d"))
    assert float(root.get("width", "0")) > 100
    assert "prefers-color-scheme: dark" in "".join(root.itertext())
