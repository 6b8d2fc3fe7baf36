"""MLflow is not asked about a finished sweep of which nothing has changed, and else always."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient
from tracking_scene import Scene, finish, measure, of

from fope_lab.sweep import Plan
from fope_lab.tracking import settled
from fope_lab.tracking.cells import CellRecord, Estimate
from fope_lab.tracking.server import Server


@pytest.fixture
def plan(scene: Scene) -> Plan:
    """A finished sweep with a report, all of which MLflow has, as the last upload saw."""
    plan = scene.plan()
    for stage in plan.sweep.stages:
        if stage.kind == "perplexity":
            measure(scene.folder(stage), {64: 9.0, 128: 12.0})
        else:
            finish(scene.folder(stage))
    plan = scene.plan()
    keep_report(scene, plan, 9.0)
    scene.tracker.project(plan)
    assert asks(scene, plan)  # it sent something before, so it looks once more
    assert not asks(scene, plan)
    return plan


def keep_report(scene: Scene, plan: Plan, mean: float) -> None:
    page = scene.root / "report.html"
    page.write_text("the report")
    [key] = [of(plan, "perplexity").key]
    estimate = Estimate(name="perplexity_by_length", x=64, n=1, mean=mean, stderr=None, ci95=None)
    cell = CellRecord(measured=(key,), missing=(), estimates=(estimate,), time=1)
    scene.tracker.keep_report(plan, [page], {("stages done",): 4.0}, [cell])
    scene.tracker.keep_pictures(plan, f"{mean}", lambda: {"figure.svg": b"<svg/>"})


def asks(scene: Scene, plan: Plan) -> bool:
    """Whether a new process that brings MLflow up to date asks it anything."""
    asked = []
    experiment = Server.experiment

    def noted(*arguments: object) -> object:
        asked.append(arguments)
        return experiment(*arguments)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Server, "experiment", noted)
        scene.restart().project(plan)
    return bool(asked)


def another_result(scene: Scene, plan: Plan) -> None:
    folder = scene.folder(of(plan, "perplexity"))
    folder.set_aside("test")
    measure(folder, {64: 7.0, 128: 8.0})


def a_damaged_result(scene: Scene, plan: Plan) -> None:
    scene.folder(of(plan, "perplexity")).paths.result.write_text("{}")


def a_new_attempt(scene: Scene, plan: Plan) -> None:
    folder = scene.folder(of(plan, "pretrain"))
    folder.set_aside("test")
    with pytest.raises(ValueError, match="no data"), folder.begin("test", {}):
        raise ValueError("no data")


def a_lost_record(scene: Scene, plan: Plan) -> None:
    for path in (scene.folder(of(plan, "pretrain")).path / "tracking").iterdir():
        path.unlink()


def another_report(scene: Scene, plan: Plan) -> None:
    page = scene.root / "other.html"
    page.write_text("another report")
    scene.tracker.keep_report(plan, [page], {})


def other_cells(scene: Scene, plan: Plan) -> None:
    keep_report(scene, plan, 9.5)


def a_deleted_run(scene: Scene, plan: Plan) -> None:
    run = scene.run(of(plan, "pretrain"))
    MlflowClient(tracking_uri=scene.uri).delete_run(run.info.run_id)


def an_edited_tag(scene: Scene, plan: Plan) -> None:
    run = scene.run(of(plan, "pretrain"))
    MlflowClient(tracking_uri=scene.uri).set_tag(run.info.run_id, "kind", "x")


def a_new_database(scene: Scene, plan: Plan) -> None:
    (scene.store.root / "mlflow.db").unlink()


def a_copied_database(scene: Scene, plan: Plan) -> None:
    file = scene.store.root / "mlflow.db"
    shutil.copy2(file, file.with_name("copy"))
    file.with_name("copy").replace(file)


CHANGES = (
    *(another_result, a_damaged_result, a_new_attempt, a_lost_record, another_report, other_cells),
    *(a_deleted_run, an_edited_tag, a_new_database, a_copied_database),
)


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_mlflow_is_asked(
    scene: Scene, plan: Plan, change: Callable[[Scene, Plan], None]
) -> None:
    change(scene, plan)
    assert asks(scene, plan)
    run = scene.run(of(plan, "pretrain"))
    assert run.data.tags["kind"] == "pretrain"
    assert run.info.status == ("FAILED" if change is a_new_attempt else "FINISHED")


def test_another_plan_or_version_asks_mlflow(
    scene: Scene, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = scene.plan(embeddings="nope, rope")
    assert asks(scene, changed)
    assert not asks(scene, changed)
    monkeypatch.setattr(settled, "package_digest", lambda: "other code")
    assert asks(scene, changed)
    assert not asks(scene, changed)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "99")
    assert asks(scene, changed)
    assert not asks(scene, changed)
    assert asks(scene, scene.plan(embeddings="rope, nope, alibi"))  # it has unfinished stages
    assert asks(scene, scene.plan(embeddings="rope, nope, alibi"))


def test_a_transaction_that_leaves_size_and_time_is_noticed(scene: Scene, plan: Plan) -> None:
    file = scene.store.root / "mlflow.db"
    before = file.stat()
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE tags SET value = 'y' WHERE value = 'pretrain'")
    connection.close()
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert asks(scene, plan)
    assert scene.run(of(plan, "pretrain")).data.tags["kind"] == "pretrain"


def test_a_database_in_a_transaction_and_a_server_have_no_mark(tmp_path: Path) -> None:
    file = tmp_path / "mlflow.db"
    assert settled.database_mark(None) is settled.database_mark(file) is None
    file.write_bytes(b"SQLite format 3\0")
    assert settled.database_mark(file) is not None
    file.with_name("mlflow.db-journal").touch()
    assert settled.database_mark(file) is None


def test_a_sync_with_nothing_new_does_without_mlflow(scene: Scene, plan: Plan) -> None:
    code = (
        "import sys; from fope_lab.cli.app import main;"
        f"assert main(['sync', '--store', {str(scene.store.root)!r}]) == 0;"
        "assert 'mlflow' not in sys.modules and 'sqlalchemy' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "up to date: first\n"
