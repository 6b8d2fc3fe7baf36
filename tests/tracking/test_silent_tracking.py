"""A dead or locked MLflow costs seconds and one line; a large upload is never cut off."""

from __future__ import annotations

import io
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from rich.console import Console
from tracking_scene import Scene, at_most, expected, finish, free_port, of
from uploads_here import UploadsHere

from fope_lab.cli import main
from fope_lab.orchestration import run_sweeps as running
from fope_lab.tracking import client as client_module
from fope_lab.tracking import database as database_module
from fope_lab.tracking.client import Patience
from fope_lab.tracking.errors import TrackingError
from fope_lab.tracking.tracker import Tracker, TrackingThread


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow is given up after a second."""
    monkeypatch.setattr(client_module, "SILENCE", 1.0)
    monkeypatch.setattr(database_module, "BUSY_SECONDS", 1.0)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The URI of something that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def locked(database: Path, kind: str) -> Iterator[None]:
    """The database as it is while another process writes to it."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute(f"BEGIN {kind}")
        yield
        connection.execute("ROLLBACK")


def finished(scene: Scene, *names: str) -> None:
    """Sweeps whose stages are done and sent."""
    for name in names:
        scene.tracker.project(scene.finish(scene.plan(name, "rope")))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("kind", ["IMMEDIATE", "EXCLUSIVE"])
def test_a_locked_database_costs_sync_one_line(
    scene: Scene, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    finished(scene, "first", "second")
    for name in ("first", "second"):
        scene.tracker.log_report(scene.plan(name, "rope"), {}, {})
    capfd.readouterr()
    with locked(scene.store.root / "mlflow.db", kind), at_most(5):
        assert main(["sync", "--store", str(scene.store.root)]) == 2
    output = capfd.readouterr()
    assert output.out == ""
    database = scene.store.root / "mlflow.db"
    assert output.err == f"error: the MLflow database {database} is locked by another process\n"


@pytest.mark.usefixtures("impatient")
def test_a_locked_database_costs_the_end_of_a_run_one_line_and_sync_then_sends_the_reports(
    scene: Scene, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("first", "second")
    finished(scene, *names)
    sweeps = [scene.plan(name, "rope").sweep for name in names]
    output = io.StringIO()
    capfd.readouterr()
    with locked(scene.store.root / "mlflow.db", "EXCLUSIVE"), at_most(15):
        running.run_sweeps(
            sweeps,
            UploadsHere(),  # as impatient as this process
            store=str(scene.store.root),
            tracking_uri=None,
            address="local",
            console=Console(file=output, width=200),
        )
    assert output.getvalue().count("up to date") == 1
    [line] = [text for text in output.getvalue().splitlines() if "up to date" in text]
    assert "is locked by another process. Run `fope-lab sync --store" in line
    assert capfd.readouterr().err == ""
    assert main(["sync", "--store", str(scene.store.root)]) == 0
    assert capfd.readouterr().out == "up to date: first, second\n", output.getvalue()
    for name in names:
        kinds = [run.data.tags["kind"] for run in scene.runs(name)]
        assert kinds.count("summary") == 1


@pytest.mark.usefixtures("impatient")
def test_a_server_that_does_not_answer_is_asked_once(
    scene: Scene, silent_server: str, capfd: pytest.CaptureFixture[str]
) -> None:
    names = ("first", "second", "third", "fourth", "fifth")
    command = ["sync", "--store", str(scene.store.root)]
    finished(scene, *names)
    capfd.readouterr()
    with at_most(4):
        assert main([*command, "--tracking-uri", silent_server]) == 2
    assert capfd.readouterr().err == f"error: MLflow at {silent_server} did not answer in time\n"
    tracker = Tracker(scene.store.root, silent_server)
    thread = TrackingThread(tracker, [scene.plan(name, "rope") for name in names])
    thread.start()
    with at_most(4):
        assert thread.flush() == f"MLflow at {silent_server} did not answer in time"
    assert thread.unreachable == thread.last_error


def test_a_server_that_is_down_is_told_at_once(scene: Scene) -> None:
    plan = scene.plan()
    finish(scene.folder(of(plan, "pretrain")))
    uri = f"http://127.0.0.1:{free_port()}"
    down = Tracker(scene.store.root, uri)
    with at_most(3), pytest.raises(TrackingError, match=f"^no MLflow answers at {uri}$"):
        down.project(plan)
    thread = TrackingThread(down, [plan], seconds=0.05)
    thread.start()
    with at_most(5):
        problem = thread.flush()
    assert problem == f"no MLflow answers at {uri}"


def test_a_database_that_can_not_be_reached_is_tried_once(
    scene: Scene, capfd: pytest.CaptureFixture[str]
) -> None:
    """MLflow itself tries for 100 s and prints each error; a server's database is no different."""
    plan = scene.plan()
    uri = f"sqlite:///file:{scene.root}/nowhere/mlflow.db?uri=true"
    with at_most(8), pytest.raises(TrackingError, match="unable to open database file"):
        Tracker(scene.store.root, uri).project(plan)
    assert capfd.readouterr().err == ""


def test_a_large_upload_is_not_cut_off(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, stage = scene.planned()
    with scene.folder(stage).begin("test", {}) as attempt:
        for step in range(5_000):
            attempt.writer.log(step, {"loss": float(step)})
        attempt.finish({})
    log_batch = MlflowClient.log_batch

    def slow(*args: Any, **settings: Any) -> None:
        time.sleep(0.7)
        log_batch(*args, **settings)

    monkeypatch.setattr(MlflowClient, "log_batch", slow)
    monkeypatch.setattr(client_module, "SILENCE", 2.5)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    thread = TrackingThread(scene.tracker, [plan])
    thread.start()
    started = time.monotonic()
    assert thread.flush() is None
    assert time.monotonic() - started > 2.5
    assert scene.points(scene.run(stage)) == expected(scene.folder(stage).rows())


def short_requests(patience: Patience) -> None:
    for _ in range(8):
        with patience.asking():
            time.sleep(0.1)


def work_of_our_own(patience: Patience) -> None:
    with patience.asking():
        pass
    time.sleep(0.8)


def signs_of_life(patience: Patience) -> None:
    with patience.asking():
        for _ in range(8):
            time.sleep(0.1)
            patience.sign()


def a_large_file(patience: Patience) -> None:
    with patience.sending(500_000), patience.asking():
        time.sleep(0.8)


def silence(patience: Patience) -> None:
    with patience.asking():
        time.sleep(0.8)


@pytest.mark.parametrize(
    ("work", "ends"),
    [
        (short_requests, True),
        (work_of_our_own, True),
        (signs_of_life, True),
        (a_large_file, True),
        (silence, False),
    ],
)
def test_only_silence_ends_the_waiting(
    work: Callable[[Patience], None], ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "SILENCE", 0.4)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "0")
    patience = Patience()
    thread = threading.Thread(target=work, args=[patience])
    thread.start()
    assert patience.wait(thread) is ends
    thread.join()


def test_an_interrupted_run_waits_for_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    patience = Patience()
    thread = threading.Thread(target=short_requests, args=[patience])
    thread.start()
    with at_most(0.7):
        assert not patience.wait(thread, 0.2)
    thread.join()
