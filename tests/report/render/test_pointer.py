"""What a page knows of a drawing's points: where they are, and what they say."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from report_samples import report_of, typical_numbers

from fope_lab.report import Report
from fope_lab.report.render.documents import render_html
from fope_lab.report.render.figures import draw_figures
from fope_lab.report.render.tables import cell_text
from fope_lab.store import Store
from fope_lab.sweep.graph import Stage

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
