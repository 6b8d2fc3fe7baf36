"""MLflow's SQLite database is whole or not there, and never changed if it can't be read."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tracking_scene import Scene, execute, expected

from fope_lab.tracking.errors import TrackingError

pytestmark = pytest.mark.faults

AT_ONCE = """
import os, sys
from pathlib import Path
from fope_lab.store.root import Store
from fope_lab.sweep import load_sweep, plan
from fope_lab.tracking.tracker import Tracker
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
