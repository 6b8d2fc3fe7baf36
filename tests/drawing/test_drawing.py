"""SVG that is short and looks as it did, colours that everybody can tell apart, and heat maps."""

from __future__ import annotations

import itertools
import math
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from fontTools.pens.recordingPen import RecordingPen
from fontTools.svgLib.path import parse_path
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import rc_context
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fope_lab.analysis.decay import Decay
from fope_lab.drawing.panels import SHADES, Heatmap, draw_cells, draw_heatmap
from fope_lab.drawing.svg import (
    COLOURS,
    DASHES,
    FAMILIAR,
    PAPER,
    PLAIN,
    STYLE,
    _rewrite,
    assign_looks,
    inline_svg,
    standalone_svg,
)

PAPERS = ("#ffffff", "#14171b")
# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB
VISION = {
    "typical": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}


def linear(colour: str) -> NDArray[np.float64]:
    values = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb: NDArray[np.float64]) -> NDArray[np.float64]:
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ np.clip(rgb, 0, 1) / np.array([0.9505, 1.0, 1.089])
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("paper", [0, 1])
def test_contrast_with_the_paper(paper: int) -> None:
    for pair in COLOURS:
        assert contrast(pair[paper], PAPERS[paper]) >= 3.0, pair[paper]  # WCAG 2.1, 1.4.11


@pytest.mark.parametrize("paper", [0, 1])
@pytest.mark.parametrize(
    ("vision", "distance"),
    [("typical", 30), ("protanopia", 24), ("deuteranopia", 24), ("tritanopia", 14)],
)
def test_colours_differ_for_every_vision(paper: int, vision: str, distance: float) -> None:
    seen = [lab(np.array(VISION[vision]) @ linear(pair[paper])) for pair in COLOURS]
    for (i, first), (j, second) in itertools.combinations(enumerate(seen), 2):
        assert np.linalg.norm(first - second) >= distance, (COLOURS[i], COLOURS[j])


@given(st.lists(st.text(max_size=4), max_size=len(COLOURS) * len(DASHES), unique=True))
def test_labels_look_different(labels: list[str]) -> None:
    looks = assign_looks(labels)
    assert len({(look.colour, look.dash) for look in looks.values()}) == len(labels)


@given(st.lists(st.sampled_from([*FAMILIAR, "mine", "yours"])))
def test_familiar_labels_always_have_their_colour(labels: list[str]) -> None:
    for label, look in assign_looks(labels).items():
        if label in FAMILIAR:
            assert look == assign_looks([label])[label]


coordinate = st.floats(-2000, 2000).map(lambda value: round(value, 6))


def shortened(data: str) -> str:
    path = ET.fromstring(f'<path d="{data}"/>')
    _rewrite(path, "name", set())
    return path.get("d") or ""


@given(st.lists(st.tuples(coordinate, coordinate), min_size=2, max_size=12))
def test_every_corner_stays_within_a_tenth(curve: list[tuple[float, float]]) -> None:
    pen = RecordingPen()
    parse_path(shortened("M " + " \nL ".join(f"{x:.6f} {y:.6f}" for x, y in curve)), pen)
    read = [points[0] for command, points in pen.value if command in ("moveTo", "lineTo")]
    for point, given_point in zip(read, curve, strict=True):
        assert point == pytest.approx(given_point, abs=0.0501)


def test_curved_and_closed_paths_keep_their_commands() -> None:
    data = "M 0 3.000001 \nC 0.795609 3 1.55874 2.683901 2.12132 2.12132 \nz"
    assert shortened(data) == "M 0 3 C 0.8 3 1.6 2.7 2.1 2.1 z"


def test_small_numbers_in_exponents_are_left() -> None:
    assert shortened("M 0 1.234567e-05 Q 1 2 3 4") == "M 0 1.234567e-05 Q 1 2 3 4"


def test_a_figure_of_thousands_of_points_is_small() -> None:
    analysis = Decay(length=2048, pairs=10, head_dim=32)
    svg = inline_svg(
        analysis.draw(analysis.compute(None, lambda done, total: None)), "a", "title", "words"
    )
    assert len(svg) < 45_000


def test_a_peak_of_one_point_is_not_smoothed_away() -> None:
    figure = Figure(figsize=(4, 2), dpi=72)
    figure.add_axes((0, 0, 1, 1), ylim=(0, 1)).plot([0.9 * (i == 500) for i in range(1000)])
    svg = inline_svg(figure, "a", "title", "words")
    line = max(re.findall(r' d="([^"]*)"', svg), key=len)
    heights = [float(y) for y in re.findall(r"L [\d.]+ ([\d.]+)", line)]
    assert min(heights) == pytest.approx(144 * 0.1, abs=0.5)


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
        assert contrast(text, "#" + "".join(f"{part:02x}" for part in mixed)) >= 3


def test_a_file_of_its_own_has_a_size_and_both_papers() -> None:
    root = ET.fromstring(standalone_svg(draw_heatmap(heatmap([[1.0]])), "t", "d"))
    assert float(root.get("width", "0")) > 100
    assert "prefers-color-scheme: dark" in "".join(root.itertext())
