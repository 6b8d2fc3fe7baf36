"""Figures: what is drawn, in which colours, with which words; that labels don't collide, and what a
page knows of a drawing's points."""

from __future__ import annotations

import itertools
import json
import math
import re
import statistics
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib as mpl
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from report_samples import report_of, typical_numbers, write_plan

from fope_lab.drawing.plot import Curve, Panel, draw_panel, length_label, spread
from fope_lab.drawing.svg import COLOURS, Look, inline_svg, without_family
from fope_lab.report import Report
from fope_lab.report.render.documents import render_html
from fope_lab.report.render.figures import Figure, draw_figures
from fope_lab.report.render.tables import cell_text
from fope_lab.report.results.cells import read_stages
from fope_lab.report.results.recorded import BINS, group_training_curves
from fope_lab.store.root import Store
from fope_lab.sweep.graph import Stage

LOOK = Look(0, "o", "-")
heights = st.lists(st.floats(0, 250), max_size=12)


def figures_of(
    folder: Path, store: Store, changes: dict[str, object] | None = None, **arguments: object
) -> dict[str, Figure]:
    report = report_of(folder, store, changes, **arguments)
    return {figure.title: figure for figure in draw_figures(report)}


def words_of(svg: str) -> list[str]:
    texts = (e for e in ET.fromstring(svg).iter() if e.tag.rpartition("}")[2] == "text")
    return ["".join(element.itertext()) for element in texts]


def panel(**changes: object) -> Panel:
    curve = Curve("rope", LOOK, (32, 64, 128), (10.0, 9.0, 20.0))
    values: dict[str, object] = {
        "title": "",
        "x_label": "context length",
        "y_label": "perplexity",
        "curves": (curve,),
        "ticks": {x: str(x) for x in (32, 64, 128)},
        "log_y": False,
        "y_range": (8.0, 21.0),
    }
    return Panel(**{**values, **changes})  # type: ignore[arg-type]


@given(heights, st.floats(1, 20))
def test_labels_never_overlap_and_keep_their_order(targets: list[float], gap: float) -> None:
    positions = spread(targets, gap, 0.0, 250.0)
    assert len(positions) == len(targets)
    order = sorted(range(len(targets)), key=lambda i: targets[i])
    placed = [positions[i] for i in order]
    assert all(after - before >= gap - 1e-6 for before, after in itertools.pairwise(placed))
    if (len(targets) - 1) * gap <= 250:
        assert all(-1e-6 <= position <= 250 + 1e-6 for position in positions)


@given(heights)
def test_labels_that_have_room_stay_where_their_curves_end(targets: list[float]) -> None:
    apart = all(abs(a - b) >= 14 for i, a in enumerate(targets) for b in targets[:i])
    if apart:
        assert spread(targets, 14.0, 0.0, 250.0) == pytest.approx(targets)


def test_labels_that_collide_share_the_shift() -> None:
    assert spread([100.0, 100.0], 10.0, 0.0, 250.0) == pytest.approx([95.0, 105.0])


@pytest.mark.parametrize(
    ("length", "text"),
    [(512, "512"), (8192, "8192"), (16384, "16k"), (131072, "128k"), (10001, "10001")],
)
def test_length_labels(length: int, text: str) -> None:
    assert length_label(length) == text


def test_the_report_draws_both_metrics_and_the_training(tmp_path: Path, store: Store) -> None:
    figures = figures_of(tmp_path, store)
    assert list(figures) == [
        "Perplexity by context length",
        "Passkey accuracy by context length",
        "Loss (pretrain) along training",
    ]
    words = words_of(figures["Perplexity by context length"].drawings[0])
    for word in ("32", "64", "128", "256", "trained at 64", "nope", "alibi", "rope", "fope"):
        assert word in words
    assert "perplexity" in words
    assert any(
        note.startswith("Bands: 95 %") for note in figures["Perplexity by context length"].notes
    )
    description = ET.fromstring(figures["Passkey accuracy by context length"].drawings[0])
    text = " ".join("".join(e.itertext()) for e in description if e.tag.endswith("desc"))
    assert re.search(r"rope: 0\.9\d\d at 32, 0\.9\d\d at 64, 0\.\d{3} at 128", text)


@pytest.mark.parametrize(("ratio", "label"), [(7.9, "perplexity"), (8.1, "perplexity (log scale)")])
def test_wide_ranges_are_logarithmic(
    tmp_path: Path, store: Store, ratio: float, label: str
) -> None:
    changes = {"seeds": [0], "grid": {"pretrain.embedding": ["rope"]}}

    def numbers(stage: Stage, length: int | None) -> float:
        return 5.0 * ratio if length == 256 else 5.0

    figures = figures_of(tmp_path, store, changes, numbers=numbers)
    assert label in words_of(figures["Perplexity by context length"].drawings[0])


def test_a_label_has_one_colour_in_all_figures(tmp_path: Path, store: Store) -> None:
    """The marker beside a name, which is drawn just before the name, carries the curve's colour."""
    found: dict[str, set[str]] = {}
    for figure in figures_of(tmp_path, store).values():
        for svg in figure.drawings:
            parts = re.split(r">(nope|alibi|rope|fope)</text>", svg)
            for before, name in zip(parts[::2], parts[1::2], strict=False):
                found.setdefault(name, set()).add(re.findall(r"var\(--series-\d\)", before)[-1])
    assert {name: len(colours) for name, colours in found.items()} == dict.fromkeys(
        ("nope", "alibi", "rope", "fope"), 1
    )
    assert len(set.union(*found.values())) == 4


def test_other_axes_make_panels_on_one_scale(tmp_path: Path, store: Store) -> None:
    grid = {"pretrain.embedding": ["rope", "fope"], "pretrain.model.num_layers": [1, 2]}
    figure = figures_of(tmp_path, store, {"grid": grid})["Perplexity by context length"]
    assert len(figure.drawings) == 2
    first, second = map(words_of, figure.drawings)
    assert "num layers 1" in first
    assert "num layers 2" in second
    # the two panels hold the same words but for their titles: the scales are shared
    assert [w for w in first if "layers" not in w] == [w for w in second if "layers" not in w]


def test_options_left_out_of_names_are_given_below(tmp_path: Path, store: Store) -> None:
    bases = [{"type": name, "base": 129} for name in ("rope", "fope", "yarn")]
    embeddings = ["nope", *bases, {"type": "fope", "base": 129, "sigma": 0.1}]
    bases[-1] |= {"base": 99, "factor": 4}
    grid = {"pretrain.embedding": embeddings}
    figure = figures_of(tmp_path, store, {"grid": grid})["Perplexity by context length"]
    names = {"nope", "rope", "fope", "yarn", "fope(sigma=0.1)"}
    assert names <= set(words_of(figure.drawings[0]))
    expected = "rope, fope and fope(sigma=0.1) have base=129; yarn has base=99, factor=4."
    assert expected in figure.notes


def test_panels_are_of_one_size_and_show_all_of_their_titles() -> None:
    title = "model (num_layers=2,num_heads=4,head_dim=16,intermediate_size=128), data.length 1024"
    svg = inline_svg(draw_panel(panel(title=title)), "f", "t", "d")
    lines = [word for word in words_of(svg) if any(part in word for part in title.split(","))]
    assert "".join(lines).replace(" ", "") == title.replace(" ", "")
    assert len(lines) == 2
    widths = {
        ET.fromstring(inline_svg(draw_panel(panel(room=room)), "f", "t", "d")).get("width")
        for room in (0, len("rope"), 30)
    }
    assert len(widths) == 2


def test_long_labels_are_cut_only_where_they_stay_distinct() -> None:
    one, two, other = f"{'a' * 40}1", f"{'a' * 40}2", "b" * 40
    curves = tuple(Curve(name, LOOK, (32,), (9.0,)) for name in (one, two, other))
    words = words_of(inline_svg(draw_panel(panel(curves=curves)), "f", "t", "d"))
    assert {one, two, "b" * 35 + "…"} <= set(words)


@pytest.mark.parametrize("count", [1, 18, 40])
def test_every_label_is_within_the_picture(count: int) -> None:
    curves = tuple(Curve(f"e{i}", LOOK, (32, 64), (9.0, 9.0 + i / 10)) for i in range(count))
    drawn = draw_panel(panel(curves=curves, marks=(64,)))
    drawn.draw_without_rendering()
    labels = [text for text in drawn.axes[0].texts if text.get_text().startswith("e")]
    assert len(labels) == count
    for text in labels:
        box = text.get_window_extent()
        assert box.y0 > 0
        assert box.y1 < drawn.bbox.height


def test_points_that_are_not_finite_are_named(tmp_path: Path, store: Store) -> None:
    def numbers(stage: Stage, length: int | None) -> float:
        bad = stage.kind == "perplexity" and stage.embedding == "rope" and length == 256
        return math.inf if bad else typical_numbers(stage, length)

    figure = figures_of(tmp_path, store, numbers=numbers)["Perplexity by context length"]
    assert "rope: not finite at 256, so no point is drawn there." in figure.notes


@pytest.mark.parametrize(
    "style",
    [
        "font: 700 11px 'DejaVu Sans', sans-serif; fill: red",
        "font-weight: 700; font-size: 11px; font-family: 'DejaVu Sans', sans-serif; fill: red",
        "font-weight: 700; font-size: 11px; fill: red; font-family: sans-serif",
    ],
)
def test_the_pages_font_is_used_in_either_spelling_of_matplotlib(style: str) -> None:
    kept = {part.strip() for part in without_family(style).split(";") if part.strip()}
    assert kept == {"font-weight: 700", "font-size: 11px", "fill: red"}


def test_bands_that_are_cut_are_named(tmp_path: Path, store: Store) -> None:
    def numbers(stage: Stage, length: int | None) -> float:
        seed = stage.seed or 0
        if stage.embedding == "rope" and stage.kind == "perplexity":
            return 10.0 + 8 * (seed == 1)
        return 0.5 + 0.2 * seed if stage.kind == "passkey" else 9.0

    figures = figures_of(tmp_path, store, numbers=numbers)
    values = [10.0, 18.0, 10.0]
    low, high = scipy.stats.t.interval(
        0.95, 2, statistics.fmean(values), statistics.stdev(values) / math.sqrt(3)
    )
    notes = figures["Perplexity by context length"].notes
    assert [note for note in notes if "cut" in note] == [
        f"Bands are cut at the edge: rope reaches {high:.2f}."
    ]
    assert low < 9
    assert not any("cut" in note for note in figures["Passkey accuracy by context length"].notes)


def test_nothing_is_drawn_where_nothing_is_finite(tmp_path: Path, store: Store) -> None:
    def numbers(stage: Stage, length: int | None) -> float:
        return math.nan if stage.kind == "perplexity" else typical_numbers(stage, length)

    assert "Perplexity by context length" not in figures_of(tmp_path, store, numbers=numbers)


def test_a_dollar_or_a_tag_in_a_label_is_text() -> None:
    label = "$x_1$ <script>&"
    svg = inline_svg(
        draw_panel(panel(curves=(Curve(label, LOOK, (32, 64, 128), (9.0, 9.0, 9.0)),))),
        "f",
        "<title> & more",
        "</desc><script>",
    )
    assert label in words_of(svg)
    assert "<script" not in svg
    assert ET.fromstring(svg)[0].text == "<title> & more"


def test_drawings_are_the_same_each_time_and_leave_no_settings() -> None:
    before = dict(mpl.rcParams)
    first, second = (inline_svg(draw_panel(panel()), "f", "t", "d") for _ in range(2))
    assert first == second
    assert dict(mpl.rcParams) == before


def test_drawings_follow_the_page() -> None:
    """No colour of their own, no font, ids that no other drawing has, nothing from elsewhere."""
    svg = inline_svg(draw_panel(panel(marks=(64,), level=10.0)), "fig-7", "t", "d")
    assert not re.search(r"#[0-9a-fA-F]{6}", svg)
    assert not any(light in svg for light, _ in COLOURS)
    assert "font-family" not in svg
    assert "sans-serif" not in svg
    identifiers = re.findall(r' id="([^"]+)"', svg)
    assert len(identifiers) == len(set(identifiers))
    assert all(identifier.startswith("fig-7-") for identifier in identifiers)
    references = re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', svg)
    assert references
    assert {a or b for a, b in references} <= set(identifiers)
    assert set(re.findall(r'http[^" ]*', svg)) == {"http://www.w3.org/2000/svg"}


def test_training_curves_come_from_durable_rows(tmp_path: Path, store: Store) -> None:
    plan = write_plan(tmp_path, {"seeds": [0], "grid": {"pretrain.embedding": ["rope"]}})
    stage = next(s for s in plan.sweep.stages if s.section == "pretrain")
    with store.folder(stage.kind, stage.key).begin("test", {}) as attempt:
        for step in range(1, 4 * BINS + 1):
            attempt.writer.log(step, {"loss": float(step), "learning_rate": 1.0})
        attempt.writer.save_checkpoint(4 * BINS, lambda folder: (folder / "x").touch())
        attempt.writer.log(4 * BINS + 1, {"loss": 1e9})  # after the checkpoint: lost
    [block] = group_training_curves(read_stages(plan.sweep.stages, store))
    [history] = block.curves
    assert len(history.values) == BINS
    assert history.values[0] == pytest.approx(2.5)  # the mean of steps 1 … 4
    assert history.values[-1] == pytest.approx(4 * BINS - 1.5)
    assert history.steps == history.values
    assert "Each point is the mean of up to 4 logged rows." in block.notes
    assert any("up to its last checkpoint" in note for note in block.notes)


PERPLEXITY = "Perplexity by context length"
EMBEDDINGS = {"nope", "alibi", "rope", "fope"}
Places = dict[str, list[tuple[float, float, str]]]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return report_of(tmp_path_factory.mktemp("pointer"))


def drawing_of(report: Report, title: str) -> ET.Element:
    [figure] = [figure for figure in draw_figures(report) if figure.title == title]
    [svg] = figure.drawings
    return ET.fromstring(svg)


def points_of(svg: ET.Element) -> Places:
    curves = json.loads(svg.attrib["data-points"])
    return {curve["label"]: [tuple(point) for point in curve["points"]] for curve in curves}


def parts_of(svg: ET.Element, label: str) -> list[ET.Element]:
    return [each for each in svg.iter() if each.get("data-series") == label]


def markers_of(part: ET.Element) -> list[tuple[float, float]]:
    uses = [each for each in part.iter() if each.tag.endswith("use")]
    return [(float(use.attrib["x"]), float(use.attrib["y"])) for use in uses]


def test_a_point_is_where_its_marker_is(report: Report) -> None:
    svg = drawing_of(report, PERPLEXITY)
    for label, points in points_of(svg).items():
        drawn = [markers for part in parts_of(svg, label) if len(markers := markers_of(part)) > 1]
        assert len(drawn) == 1
        assert [(x, y) for x, y, _ in points] == [
            (pytest.approx(x, abs=0.051), pytest.approx(y, abs=0.051)) for x, y in drawn[0]
        ]


def test_a_point_says_what_the_table_says(report: Report) -> None:
    points = points_of(drawing_of(report, PERPLEXITY))
    assert set(points) == EMBEDDINGS
    [group] = [group for group in report.figure_groups if group.section == "perplexity"]
    for series in group.series:
        expected = [f"{cell_text(cell)} at {x}" for x, cell in series.cells.items()]
        assert [text for _, _, text in points[series.label]] == expected


def test_all_of_a_curve_bears_its_name(report: Report) -> None:
    """The curve and its band, the marker and the line that lead to its name, and the name."""
    svg = drawing_of(report, PERPLEXITY)
    for label in EMBEDDINGS:
        parts = parts_of(svg, label)
        assert len(parts) == 5
        assert label in {"".join(part.itertext()).strip() for part in parts}


def test_a_training_has_a_point_for_each_of_its_steps(report: Report) -> None:
    points = points_of(drawing_of(report, "Loss (pretrain) along training"))
    assert set(points) == EMBEDDINGS
    steps = {text.rpartition(" at ")[2] for _, _, text in points["rope"]}
    assert steps == {str(step) for step in range(10, 101, 10)}


def test_a_value_that_is_not_finite_has_no_point(tmp_path: Path, store: Store) -> None:
    def numbers(stage: Stage, length: int | None) -> float:
        bad = length == 128 and stage.embedding == "rope"
        return math.inf if bad else typical_numbers(stage, length)

    report = report_of(tmp_path, store, {"seeds": [0]}, numbers=numbers)
    points = points_of(drawing_of(report, PERPLEXITY))
    assert [text.rpartition(" ")[2] for _, _, text in points["rope"]] == ["32", "64", "256"]
    assert len(points["fope"]) == 4


def test_without_a_script_every_curve_is_there(report: Report) -> None:
    page, _, _ = render_html(report).partition("<script>")
    for figure in draw_figures(report):
        for drawing in figure.drawings:
            assert drawing in page
