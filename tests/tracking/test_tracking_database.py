"""The store's SQLite database: another MLflow's, replaced while in use, and of any name."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from tracking_scene import Scene, execute, expected, finish

from fope_lab.tracking.client import quiet_mlflow
from fope_lab.tracking.database import prepare
from fope_lab.tracking.errors import DamagedDatabaseError, TrackingError
from fope_lab.tracking.tracker import Tracker

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
