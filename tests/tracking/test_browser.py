"""What a researcher does in a browser: from the experiment to a view, from the report to a run.

The format of the views is MLflow's own. When a version of MLflow changes it, this test says so.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from tracking_scene import LiveServer, Scene, finish, measure

from fope_lab.orchestration.run_sweeps import keep_report, tracked_report
from fope_lab.sweep import Plan
from fope_lab.tracking.tracker import Tracker
from fope_lab.tracking.uris import VIEW

CHROMIUM = shutil.which("chromium")
sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")

PATIENCE = 60_000
"""How long to wait for a page, in ms; two busy cores need half a minute."""
CURVES = {
    ("rope", 0): {64: 9.0, 128: 20.0, 512: 80.0},
    ("rope", 1): {64: 11.0, 128: 22.0, 512: 90.0},
    ("nope", 0): {64: 10.0, 128: 15.0, 512: 30.0},
    ("nope", 1): {64: 12.0, 128: 16.0, 512: 32.0},
}
LENGTHS = [64, 128, 512]
LINES = """() => {
    const plot = document.querySelector('.js-plotly-plot');
    const lines = plot.data.filter((trace) => trace.mode === 'lines+markers');
    const kinds = [plot.layout.xaxis.type, plot.layout.yaxis.type];
    return [kinds, lines.map((line) => [Array.from(line.x), Array.from(line.y)])];
}"""
GREATEST = """() => document.querySelector('.js-plotly-plot').data
    .filter((trace) => trace.fill).map((trace) => Math.max(...trace.y))"""

IN_SIGHT = """(column) => {
    const number = document.querySelector(`.ag-header-cell[col-id="${CSS.escape(column)}"]`);
    const table = document.querySelector('.ag-header-viewport').getBoundingClientRect();
    return number && number.getBoundingClientRect().right <= table.right;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that is wide enough for the columns of a table."""
    page = browser.new_page(viewport={"width": 2200, "height": 1000})
    page.set_default_timeout(PATIENCE)
    yield page
    page.close()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Scene:
    """A store for the sweeps of both tests: the first of the one, the second of the other."""
    folder = tmp_path_factory.mktemp("browser")
    (folder / "store").mkdir()
    shutil.copy(empty_database, folder / "store" / "mlflow.db")
    return Scene(folder)


@pytest.fixture(scope="module")
def live(scene: Scene) -> Iterator[LiveServer]:
    server = LiveServer(scene.store.root)
    server.start()
    yield server
    server.stop()


def mean(embedding: str) -> list[float]:
    """The mean over seeds at each length."""
    return [fmean(CURVES[embedding, seed][length] for seed in (0, 1)) for length in LENGTHS]


@pytest.fixture
def plan(scene: Scene) -> Plan:
    """Two embeddings under two seeds, whose stages are done."""
    plan = scene.plan(seeds="0, 1")
    for stage in plan.sweep.stages:
        if stage.kind == "perplexity":
            measure(scene.folder(stage), CURVES[str(stage.embedding), stage.seed or 0])
        else:
            finish(scene.folder(stage))
    return plan


def test_from_the_experiment_to_a_view_and_from_the_report_to_a_run(
    scene: Scene, plan: Plan, live: LiveServer, page: Any
) -> None:
    tracker = Tracker(scene.store.root, live.uri)
    tracker.project(plan)
    see_a_line_for_each_embedding(page, f"{live.uri}/#/experiments/1/runs?{VIEW}")
    see_the_table_of_results(page, tracker.view_links("first", live.uri)["results"])
    written = keep_report(tracked_report(plan.sweep, scene.store, tracker), scene.store)
    page.goto(written.page.as_uri())
    switch_a_series_off(page)
    follow_a_number_to_its_run(page, live.uri)


def test_a_view_of_an_edited_sweep_has_a_short_line_for_each_of_its_settings(
    scene: Scene, live: LiveServer, page: Any
) -> None:
    tracker = Tracker(scene.store.root, live.uri)
    for embeddings in ("rope, nope, alibi", "rope, alibi"):
        rates = "pretrain.train.learning_rate: [2e-3, 5e-4]"
        plan = scene.plan("second", embeddings, grid=rates)
        for stage in plan.sweep.stages:
            if not scene.folder(stage).is_done():
                measure(scene.folder(stage), CURVES["rope", 0])
        tracker.project(plan)
    page.goto(tracker.view_links("second", live.uri)["perplexity"])
    for line in ("rope 2e-3", "rope 5e-4", "alibi 2e-3", "alibi 5e-4"):
        page.get_by_text(group(line)).wait_for()
    assert page.get_by_text("Group: ").count() == 4
    page.get_by_text("4 matching runs").wait_for()
    page.wait_for_function("() => document.querySelector('.js-plotly-plot')?.data?.length >= 4")
    _, lines = page.evaluate(LINES)
    assert len(lines) == 4


def see_a_line_for_each_embedding(page: Any, experiment: str) -> None:
    """Open the experiment, and from its menu of views the charts of the perplexity."""
    page.goto(experiment)
    page.get_by_role("button", name="Views").click()
    page.get_by_role("menu").get_by_text("perplexity", exact=True).click()
    page.locator("input[name=runs-view-mode][value=CHART]").dispatch_event("click")
    page.wait_for_function("() => document.querySelector('.js-plotly-plot')?.data?.length >= 4")
    kinds, lines = page.evaluate(LINES)
    assert kinds == ["log", "log"]
    assert sorted(lines) == sorted([LENGTHS, mean(name)] for name in ("rope", "nope"))
    assert sorted(page.evaluate(GREATEST)) == [32.0, 90.0]  # bands, up to the worst seed
    for name in ("rope", "nope"):  # beside the charts
        page.get_by_text(group(name)).wait_for()


def group(line: str) -> re.Pattern[str]:
    """What is written beside a chart for a line."""
    return re.compile(f"^Group: {line}$")


def see_the_table_of_results(page: Any, view: str) -> None:
    """Open the view of all evaluations."""
    page.goto("about:blank")
    page.goto(view)
    page.get_by_text("rope s0 perplexity").wait_for()
    for text in ("embedding", "seed", "perplexity/64", "perplexity/512", "nope s1 perplexity"):
        assert page.get_by_text(text, exact=True).count() > 0, text
    assert page.get_by_text("rope s0 pretrain").count() == 0
    size = page.viewport_size
    page.set_viewport_size({"width": 1600, "height": 900})
    page.wait_for_function(IN_SIGHT, arg="metrics.`perplexity/128`")
    page.set_viewport_size(size)


def switch_a_series_off(page: Any) -> None:
    """Switch a curve of the report's first figure off: the others stay."""
    figure = page.locator("figure").first
    rope, nope = (figure.locator(f'[data-series="{name}"]') for name in ("rope", "nope"))
    assert rope.first.is_visible()
    figure.get_by_role("button", name="rope").click()
    assert rope.count() > 0
    assert not any(rope.nth(i).is_visible() for i in range(rope.count()))
    assert nope.first.is_visible()


def follow_a_number_to_its_run(page: Any, server: str) -> None:
    """Open a number of the report's table, and the run of one of its seeds in MLflow."""
    row = page.locator("#tables table").first.locator("tbody tr").filter(has_text="rope")
    number = row.locator("details").last
    number.locator("summary").click()
    number.get_by_role("listitem").filter(has_text="seed 1: 90").get_by_role("link").click()
    page.get_by_role("heading", name="rope s1 perplexity").wait_for()
    assert page.url.startswith(f"{server}/#/experiments/")
    metric = page.get_by_role("row").filter(has_text="perplexity/512")
    metric.first.wait_for()
    assert "90" in metric.first.inner_text()
