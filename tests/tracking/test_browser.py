"""MLflow's own pages in a real browser: a prepared view opens on the figure, and on the table.

The format of the views is MLflow's own. When a version of MLflow changes it, this test says so.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from statistics import fmean
from typing import Any

import pytest
from tracking_scene import LiveServer, Scene, finish, measure

CHROMIUM = shutil.which("chromium")
sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")

PATIENCE = 120_000
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
    return [plot.layout.xaxis.type, lines.map((line) => [Array.from(line.x), Array.from(line.y)])];
}"""
GREATEST = """() => document.querySelector('.js-plotly-plot').data
    .filter((trace) => trace.fill).map((trace) => Math.max(...trace.y))"""


@pytest.fixture
def page() -> Iterator[Any]:
    """A page of a browser that is wide enough for the columns of a table."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 2200, "height": 1000})
        page.set_default_timeout(PATIENCE)
        yield page
        browser.close()


def mean(embedding: str) -> list[float]:
    """The mean over seeds at each length."""
    return [fmean(CURVES[embedding, seed][length] for seed in (0, 1)) for length in LENGTHS]


def test_a_prepared_view_opens_on_the_answer(scene: Scene, page: Any) -> None:
    plan = scene.plan(seeds="0, 1")
    for stage in plan.sweep.stages:
        if stage.kind == "perplexity":
            measure(scene.folder(stage), CURVES[str(stage.embedding), stage.seed or 0])
        else:
            finish(scene.folder(stage))
    scene.tracker.project(plan)
    live = LiveServer(scene.store.root)
    live.start()
    try:
        links = scene.tracker.view_links("first", live.uri)
        page.goto(links["perplexity"])
        page.wait_for_function("() => document.querySelector('.js-plotly-plot')?.data?.length >= 4")
        kind, lines = page.evaluate(LINES)
        assert kind == "log"
        assert sorted(lines) == sorted([LENGTHS, mean(name)] for name in ("rope", "nope"))
        assert sorted(page.evaluate(GREATEST)) == [32.0, 90.0]  # bands, up to the worst seed
        page.goto("about:blank")
        page.goto(links["results"])
        page.get_by_text("rope s0 perplexity").wait_for()
        for text in ("embedding", "seed", "perplexity/64", "perplexity/512", "nope s1 perplexity"):
            assert page.get_by_text(text, exact=True).count() > 0, text
        assert page.get_by_text("rope s0 pretrain").count() == 0
    finally:
        live.stop()
