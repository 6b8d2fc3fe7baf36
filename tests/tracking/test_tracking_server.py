"""A real MLflow server: over HTTP, in the background of a run, and ports that are taken."""

from __future__ import annotations

import io
import json
import socket
import time
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console
from tracking_scene import LiveServer, Scene, expected, finish, free_port, of

from fope_lab.orchestration.run_sweeps import run_sweeps
from fope_lab.tracking.client import Patience
from fope_lab.tracking.errors import TrackingError
from fope_lab.tracking.tracker import TrackingThread
from fope_lab.tracking.ui import serve
from fope_lab.tracking.uris import default_uri, run_link


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
    run_sweeps(
        [plan.sweep],
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
