"""The store's SQLite database is whole or not there, and never changed if it can't be read."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from tracking_scene import Scene, expected, finish

from fope_lab.tracking import Tracker, TrackingError
from fope_lab.tracking.client import quiet_mlflow
from fope_lab.tracking.database import prepare
from fope_lab.tracking.errors import DamagedDatabaseError

AT_ONCE = """
import os, sys
from pathlib import Path
from fope_lab.store import Store
from fope_lab.sweep import load_sweep, plan
from fope_lab.tracking import Tracker
from fope_lab.tracking.client import quiet_mlflow

quiet_mlflow()
import mlflow.store.tracking.sqlalchemy_store  # here, so that each child need not
from mlflow import MlflowClient

files = [Path(name) for name in sys.argv[2:]]
for attempt in range(2):
    root = Path(sys.argv[1]) / str(attempt)
    plans = [plan(load_sweep(file), Store(root)) for file in files]
    read, write = os.pipe()
    children = []
    for one in plans:
        child = os.fork()
        if child == 0:
            os.close(write)
            os.read(read, 1)  # until the parent closes it: all start at once
            Tracker(root).project(one)
            os._exit(0)
        children.append(child)
    os.close(read)
    os.close(write)
    codes = [os.waitpid(child, 0)[1] for child in children]
    left = [path.name for path in root.iterdir() if "making" in path.name]
    print(codes, left, (root / "mlflow.db").exists())
"""


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def half_made(path: Path) -> None:
    """What a migration leaves that is killed in the middle."""
    execute(
        path,
        "CREATE TABLE _alembic_tmp_experiments (experiment_id INTEGER)",
        "UPDATE alembic_version SET version_num = '451aebb31d03'",
        "DROP TABLE trace_info",
    )


def garbage(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def damaged_page(path: Path) -> None:
    """MLflow's tables look whole, until their rows are read."""
    with closing(sqlite3.connect(path)) as connection:
        [size] = connection.execute("PRAGMA page_size").fetchone()
        query = "SELECT rootpage FROM sqlite_master WHERE name IN ('experiments', 'runs')"
        pages = [page for (page,) in connection.execute(query)]
    with path.open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * size)
            file.write(b"\xff" * size)


def test_processes_that_start_at_once_share_a_fresh_store(scene: Scene) -> None:
    names = ("first", "second")
    for name in names:
        scene.plan(name)
    files = [str(scene.root / f"{name}.yaml") for name in names]
    command = [sys.executable, "-c", AT_ONCE, str(scene.root / "fresh"), *files]
    done = subprocess.run(command, check=True, text=True, capture_output=True)
    assert (done.stderr, done.stdout.splitlines()) == ("", ["[0, 0] [] True"] * 2)


@pytest.mark.parametrize("damage", [garbage, half_made, truncated, damaged_page])
def test_a_database_that_can_not_be_read_is_left_alone_and_sync_fills_another(
    scene: Scene, damage: Callable[[Path], None]
) -> None:
    for name in ("first", "second"):
        scene.tracker.project(scene.finish(scene.plan(name, "rope")))
    database = scene.store.root / "mlflow.db"
    damage(database)
    before = database.read_bytes()
    with pytest.raises(TrackingError, match="Move it away: `fope-lab sync` fills") as caught:
        scene.restart().project(scene.plan("first", "rope"))
    assert str(database) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert database.read_bytes() == before
    database.rename(scene.root / "moved.db")
    assert scene.restart().sync() == ["first", "second"]
    for name in ("first", "second"):
        runs = scene.runs(name)
        assert len(runs) == len(scene.plan(name, "rope").sweep.stages)
        for run in runs:
            folder = scene.store.folder(run.data.tags["kind"], run.data.tags["key"])
            assert scene.points(run) == expected(folder.rows())


OLDER = (
    "CREATE TABLE alembic_version (version_num VARCHAR)",
    "INSERT INTO alembic_version VALUES ('451aebb31d03')",  # the first step
    "CREATE TABLE experiments (experiment_id INTEGER)",
)


@pytest.mark.parametrize(
    ("statements", "fault"),
    [
        (OLDER, "mlflow db upgrade"),
        (["CREATE TABLE addresses (name VARCHAR)"], "another program's tables"),
    ],
)
def test_a_database_of_an_older_mlflow_or_another_program_is_left_as_it_is(
    tmp_path: Path, statements: Sequence[str], fault: str
) -> None:
    quiet_mlflow()
    path = tmp_path / "theirs.db"
    execute(path, *statements)
    old = path.read_bytes()
    with pytest.raises(DamagedDatabaseError, match=fault):
        prepare(path)
    assert path.read_bytes() == old


def test_a_database_of_a_newer_mlflow_is_no_damage(scene: Scene) -> None:
    database = scene.store.root / "mlflow.db"
    execute(database, "UPDATE alembic_version SET version_num = 'of the future'")
    with pytest.raises(TrackingError, match="made by another version of MLflow"):
        scene.tracker.project(scene.plan())
    assert database.exists()


def test_a_database_that_is_removed_or_replaced_while_in_use_is_filled_again(
    scene: Scene, empty_database: Path
) -> None:
    plan, stage = scene.planned()
    finish(scene.folder(stage))
    database = scene.store.root / "mlflow.db"
    scene.tracker.project(plan)
    for put in (database.unlink, lambda: empty_database.replace(database)):
        copy = empty_database.read_bytes()
        put()
        scene.tracker.project(plan)
        empty_database.write_bytes(copy)
        assert scene.points(scene.run(stage)) == expected(scene.folder(stage).rows())
    moved = scene.root / "copy.db"  # what is on disk, rather than what this process has open
    moved.write_bytes(database.read_bytes())
    scene.uri = f"sqlite:///{moved}"
    assert scene.points(scene.run(stage)) == expected(scene.folder(stage).rows())


@pytest.mark.parametrize("name", ["a?b", "a%20b", "a#b", "a b ü", "a:b@c;d&e=f"])
def test_a_store_may_have_any_name(tmp_path: Path, empty_database: Path, name: str) -> None:
    root = tmp_path / name / "store"
    root.mkdir(parents=True)
    (root / "mlflow.db").write_bytes(empty_database.read_bytes())
    scene = Scene(tmp_path / name)
    plan, stage = scene.planned()
    finish(scene.folder(stage))
    scene.report(plan, {"report.html": b"a report"}, {})
    assert scene.points(scene.run(stage)) == expected(scene.folder(stage).rows())
    with closing(sqlite3.connect(root / "mlflow.db")) as connection:
        [runs] = connection.execute("SELECT count(*) FROM runs").fetchone()
    assert runs == 2
    assert len(list(root.glob("mlartifacts/*/*/artifacts/report.html"))) == 1
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [name]
    user_names_it = Tracker(root, Tracker(root).uri)
    assert user_names_it.uri == Tracker(root).uri
    assert user_names_it.runs(plan.sweep) == scene.tracker.runs(plan.sweep)
