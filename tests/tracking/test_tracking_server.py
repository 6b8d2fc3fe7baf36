"""A real MLflow server: over HTTP, beside a run, and in a browser.

There, from the experiment to a view and from the report to a run, as a researcher goes. The format
of the views is MLflow's own: when a version of MLflow changes it, these tests say so.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import socket
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from rich.console import Console
from tracking_scene import LiveServer, Scene, expected, finish, free_port, measure, of

from fope_lab.orchestration.run_sweeps import ReportOfSweep, run_sweeps
from fope_lab.sweep import Plan
from fope_lab.tracking.client import Patience
from fope_lab.tracking.errors import TrackingError
from fope_lab.tracking.tracker import Tracker, TrackingThread
from fope_lab.tracking.ui import serve
from fope_lab.tracking.uploads import Uploads
from fope_lab.tracking.uris import VIEW, default_uri, run_link

CHROMIUM = shutil.which("chromium")
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
def server(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Iterator[LiveServer]:
    """A running server, started once for all tests here: that takes ten seconds."""
    root = tmp_path_factory.mktemp("server") / "a folder? %20 #ü" / "store"
    root.mkdir(parents=True)
    shutil.copy(empty_database, root / "mlflow.db")
    live = LiveServer(root)
    live.start()
    yield live
    if live.process.poll() is None:
        assert live.stop() == 0


@pytest.fixture
def remote(tmp_path: Path, server: LiveServer) -> Scene:
    """A store whose MLflow is the running server."""
    return Scene(tmp_path, server.uri)


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return bytes(answer.read())


def test_a_server_gets_every_point_once(remote: Scene) -> None:
    plan = remote.plan("over-http")
    for stage in plan.sweep.stages:
        finish(remote.folder(stage))
        remote.tracker.project(plan)
    stage = of(plan, "pretrain")
    for record in remote.folder(stage).path.glob("tracking/*.json"):
        record.unlink()
    remote.restart().project(plan)
    assert len(remote.runs("over-http")) == len(plan.sweep.stages)
    for one in plan.sweep.stages:
        run = remote.run(one, "over-http")
        assert remote.points(run) == expected(remote.folder(one).rows())
        assert run.info.status == "FINISHED"


def test_a_password_is_used_and_kept_nowhere(tmp_path: Path, server: LiveServer) -> None:
    secret = "correct-horse"
    scene = Scene(tmp_path, server.uri.replace("//", f"//me:{secret}@"))
    plan = scene.plan("with-password")
    for stage in plan.sweep.stages:
        finish(scene.folder(stage), checkpoint=stage.kind == "pretrain")
    output = io.StringIO()
    with Uploads() as uploads:
        run_sweeps(
            [plan.sweep],
            uploads,
            store=str(scene.store.root),
            tracking_uri=scene.uri,
            address="local",
            console=Console(file=output, width=200),
        )
    assert f"MLflow: {server.uri.replace('//', '//…@')}\n" in output.getvalue()
    assert "not up to date" not in output.getvalue()
    kinds = Counter(run.data.tags["kind"] for run in scene.runs("with-password"))
    assert kinds.total() == len(plan.sweep.stages) + 1
    assert secret not in output.getvalue()
    files = [path for root in (tmp_path, server.root) for path in root.rglob("*")]
    for path in files:
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path
    page = (scene.store.root / "reports" / "with-password" / "report.html").read_text()
    assert f'href="{server.uri}/#/experiments/' in page


def test_the_pages_of_a_store_show_what_was_written_without_a_server(
    server: LiveServer, tmp_path: Path
) -> None:
    local = Scene(tmp_path, default_uri(server.root))
    plan = local.plan("written-directly")
    stage = of(plan, "pretrain")
    finish(local.folder(stage))
    local.tracker.project(plan)
    local.report(plan, {"report.html": b"<p>direct</p>"}, {})
    run_id = local.run_ids(plan)[stage.key]
    run = json.loads(get(f"{server.uri}/api/2.0/mlflow/runs/get?run_id={run_id}"))["run"]
    assert run["info"]["run_id"] == run_id
    assert get(run_link(server.uri, run["info"]["experiment_id"], run_id)).startswith(b"<!doctype")
    (summary,) = [r for r in local.runs("written-directly") if r.data.tags["kind"] == "summary"]
    page = f"{server.uri}/get-artifact?path=report.html&run_uuid={summary.info.run_id}"
    assert get(page) == b"<p>direct</p>"


def test_the_thread_keeps_up_with_a_run(remote: Scene) -> None:
    plan = remote.plan("in-background")
    stage = of(plan, "pretrain")
    thread = TrackingThread(remote.tracker, [plan], seconds=0.1)
    thread.start()
    finish(remote.folder(stage))
    deadline = time.monotonic() + 20
    while stage.key not in remote.run_ids(plan) and time.monotonic() < deadline:
        time.sleep(0.05)
    last = of(plan, "perplexity")
    finish(remote.folder(last))  # done between the last projection and the flush
    problem = thread.flush()
    assert problem is None
    for one in (stage, last):
        run = remote.run(one, "in-background")
        assert remote.points(run) == expected(remote.folder(one).rows())


def test_a_thread_outlives_whatever_goes_wrong(scene: Scene) -> None:
    class Broken:
        uri = "http://nowhere"
        patience = Patience()
        calls = 0

        def project(self, plan: object) -> None:
            self.calls += 1
            if self.calls < 3:
                raise RuntimeError("broken")

    broken = Broken()
    thread = TrackingThread(broken, [scene.plan()], seconds=0.01)  # type: ignore[arg-type]
    thread.start()
    deadline = time.monotonic() + 10
    while broken.calls < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert thread.flush() is None
    assert thread.last_error is None


def test_serving_on_a_port_that_is_taken_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(TrackingError, match=rf"127\.0\.0\.1:{port}: another program listens"):
            serve(tmp_path, port=port)
    with pytest.raises(TrackingError, match="no-such-host"):
        serve(tmp_path, host="no-such-host.invalid", port=port)


def test_serving_a_damaged_database_says_why(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("not a database")
    with pytest.raises(TrackingError, match=r"is not a database\. Move it away: `fope-lab sync`"):
        serve(tmp_path, port=free_port())


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
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


@pytest.fixture
def beside(server: LiveServer) -> Scene:
    """The store whose database the server shows, for the sweeps of the tests in a browser."""
    return Scene(server.root.parent)


def mean(embedding: str) -> list[float]:
    """The mean over seeds at each length."""
    return [fmean(CURVES[embedding, seed][length] for seed in (0, 1)) for length in LENGTHS]


@pytest.fixture
def plan(beside: Scene) -> Plan:
    """Two embeddings under two seeds, whose stages are done."""
    plan = beside.plan(seeds="0, 1")
    for stage in plan.sweep.stages:
        if stage.kind == "perplexity":
            measure(beside.folder(stage), CURVES[str(stage.embedding), stage.seed or 0])
        else:
            finish(beside.folder(stage))
    return plan


def test_from_the_experiment_to_a_view_and_from_the_report_to_a_run(
    beside: Scene, plan: Plan, server: LiveServer, page: Any
) -> None:
    tracker = Tracker(beside.store.root, server.uri)
    tracker.project(plan)
    experiment = beside.runs("first")[0].info.experiment_id
    see_a_line_for_each_embedding(page, f"{server.uri}/#/experiments/{experiment}/runs?{VIEW}")
    see_the_table_of_results(page, tracker.view_links("first", server.uri)["results"])
    written = ReportOfSweep(plan.sweep, beside.store, tracker).save()
    page.goto(written.page.as_uri())
    switch_a_series_off(page)
    follow_a_number_to_its_run(page, server.uri)


def test_a_view_of_an_edited_sweep_has_a_short_line_for_each_of_its_settings(
    beside: Scene, server: LiveServer, page: Any
) -> None:
    tracker = Tracker(beside.store.root, server.uri)
    for embeddings in ("rope, nope, alibi", "rope, alibi"):
        rates = "pretrain.train.learning_rate: [2e-3, 5e-4]"
        plan = beside.plan("second", embeddings, grid=rates)
        for stage in plan.sweep.stages:
            if not beside.folder(stage).is_done():
                measure(beside.folder(stage), CURVES["rope", 0])
        tracker.project(plan)
    page.goto(tracker.view_links("second", server.uri)["perplexity"])
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
