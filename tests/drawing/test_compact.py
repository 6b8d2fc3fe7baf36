"""Drawings that are made smaller look as they did, by an independent reader of paths."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections import defaultdict

import numpy as np
import pytest
from fontTools.pens.recordingPen import RecordingPen
from fontTools.svgLib.path import parse_path
from hypothesis import given, settings
from hypothesis import strategies as st

from fope_lab.analysis.decay import Decay
from fope_lab.drawing.compact import LONG, compact, thin_out
from fope_lab.drawing.svg import inline_saved, inline_svg, standalone_svg

SVG = "http://www.w3.org/2000/svg"
coordinate = st.floats(-2000, 2000).map(lambda value: round(value, 6))
points_of = st.lists(st.tuples(coordinate, coordinate), min_size=2, max_size=12)


def svg_of(inside: str) -> ET.Element:
    root = ET.fromstring(f'<svg xmlns="{SVG}">{inside}</svg>')
    compact(root)
    return root


def shortened(data: str) -> str:
    [path] = svg_of(f'<path d="{data}"/>')
    return path.get("d") or ""


def points(data: str) -> list[list[tuple[float, float]]]:
    """The points of each subpath, as fontTools reads them."""
    pen = RecordingPen()
    parse_path(data, pen)
    subpaths: list[list[tuple[float, float]]] = []
    for command, arguments in pen.value:
        if command == "moveTo":
            subpaths.append([])
        subpaths[-1] += arguments
    return subpaths


def as_matplotlib_writes(curve: list[tuple[float, float]]) -> str:
    return "M " + " \nL ".join(f"{x:.6f} {y:.6f}" for x, y in curve)


def near(x: tuple[float, float], y: tuple[float, float], distance: float) -> bool:
    return max(abs(x[0] - y[0]), abs(x[1] - y[1])) <= distance


@given(points_of)
def test_every_corner_stays_within_a_hundredth(curve: list[tuple[float, float]]) -> None:
    [read] = points(shortened(as_matplotlib_writes(curve)))
    remaining = iter(curve)
    for point in read:  # in the same order; equal ones may be left out
        assert any(near(point, given, 0.0051) for given in remaining)
    assert near(read[0], curve[0], 0.0051)
    assert near(read[-1], curve[-1], 0.0051)
    assert all(any(near(point, other, 0.0101) for other in read) for point in curve)


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(LONG + 1, 400), st.floats(0.05, 3))
def test_a_long_curve_keeps_the_ends_of_every_column(seed: int, length: int, step: float) -> None:
    heights = np.random.default_rng(seed).integers(-300, 300, length) / 7
    curve = [(i * step, height) for i, height in enumerate(heights.tolist())]
    kept = thin_out(curve)
    assert set(kept) <= set(curve)
    assert kept == sorted(kept, key=lambda point: point[0])
    columns: dict[int, list[float]] = defaultdict(list)
    for x, y in curve:
        columns[math.floor(x)].append(y)
    after: dict[int, list[float]] = defaultdict(list)
    for x, y in kept:
        after[math.floor(x)].append(y)
    assert columns.keys() == after.keys()
    for column, ys in columns.items():
        assert (min(ys), max(ys)) == (min(after[column]), max(after[column]))
        assert (ys[0], ys[-1]) == (after[column][0], after[column][-1])
        assert len(after[column]) <= 4
    [read] = points(shortened(as_matplotlib_writes(curve)))
    assert all(any(near(point, other, 0.051) for other in kept) for point in read)


def test_errors_of_rounding_do_not_add_up() -> None:
    curve = [(i * 1.3333333, i * 0.7777777 % 50) for i in range(3000)]
    [read] = points(shortened(as_matplotlib_writes(curve)))
    assert near(read[-1], curve[-1], 0.051)


def test_closed_shapes_stay_closed() -> None:
    data = shortened("M 0 0 \nL 46.123456 0 \nL 46.123456 24 \nL 0 24 \nL 0 0 \nz\nM 5 5 L 6 6")
    assert data == "M0 0h46.12v24h-46.12v-24zM5 5l1 1"


def test_curved_paths_keep_their_commands() -> None:
    data = "M 0 3.000001 \nC 0.795609 3 1.55874 2.683901 2.12132 2.12132 \nz"
    assert shortened(data) == "M 0 3 C 0.8 3 1.56 2.68 2.12 2.12 z"


def test_small_numbers_in_exponents_are_left() -> None:
    assert shortened("M 0 1.234567e-05 Q 1 2 3 4") == "M 0 1.234567e-05 Q 1 2 3 4"


def test_groups_and_space_without_effect_are_left_out() -> None:
    inside = '\n <g>\n  <g id="a">\n   <text>two  words</text>\n  </g>\n </g>\n'
    root = svg_of(inside + '<path d="M 0 0 L 1 1" style="fill: none"/>')
    [group] = root
    [text] = group
    assert (group.get("id"), text.text) == ("a", "two  words")
    assert [element.tail for element in root.iter()] == [None, None, None]
    assert (root.text, group.text) == (None, None)


def test_numbers_of_texts_are_rounded_and_idle_rotations_go() -> None:
    [text] = svg_of('<text x="1.23456" y="-0.0001" transform="rotate(-0 1.2 3.4)">1.23456</text>')
    assert (dict(text.attrib), text.text) == ({"x": "1.23", "y": "0"}, "1.23456")


@pytest.fixture(scope="module")
def decay() -> tuple[Decay, dict[str, np.ndarray]]:
    analysis = Decay(length=2048, pairs=10, head_dim=32)
    return analysis, dict(analysis.compute(None, lambda done, total: None))


def test_a_figure_of_thousands_of_points_is_small(
    decay: tuple[Decay, dict[str, np.ndarray]],
) -> None:
    svg = inline_svg(decay[0].draw(decay[1]), "a", "title", "words")
    assert len(svg) < 40_000  # 126,000 before


def test_a_saved_figure_is_shown_as_one_that_is_drawn(
    decay: tuple[Decay, dict[str, np.ndarray]],
) -> None:
    saved = standalone_svg(decay[0].draw(decay[1]), "its title", "its words")
    drawn = inline_svg(decay[0].draw(decay[1]), "here-3", "title", "a < b")
    shown = inline_saved(saved, "here-3", "title", "a < b")
    assert shown == drawn


@pytest.mark.parametrize(
    ("before", "after"),
    [("</svg>", ""), ("var(--ink)", "var(--ink-2)"), ("<svg", "<svg <")],
    ids=["cut", "colour of another version", "damaged"],
)
def test_a_file_that_a_page_cannot_show_is_not_shown(
    decay: tuple[Decay, dict[str, np.ndarray]], before: str, after: str
) -> None:
    saved = standalone_svg(decay[0].draw(decay[1]), "title", "words")
    assert before in saved
    assert inline_saved(saved.replace(before, after), "a", "t", "d") is None
