"""A store with an MLflow database, and a server started once for a test module."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy
from tracking_scene import LiveServer, Scene

from fope_lab.tracking.database import prepare


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk() -> None:
    """No test here cuts the power, and most of their time would be the disk's."""
    sqlalchemy.event.listen(
        sqlalchemy.Engine, "connect", lambda raw, _: raw.execute("PRAGMA synchronous = OFF")
    )


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite database with MLflow's tables: making them takes longer than most tests here."""
    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    prepare(path)
    return path


@pytest.fixture
def scene(tmp_path: Path, empty_database: Path) -> Scene:
    """An empty store with an empty database."""
    (tmp_path / "store").mkdir()
    shutil.copy(empty_database, tmp_path / "store" / "mlflow.db")
    return Scene(tmp_path)


@pytest.fixture
def second_scene(tmp_path: Path) -> Callable[[str], Scene]:
    """Another empty store that uses the MLflow at a given URI."""
    return lambda uri: Scene(tmp_path / "second", uri)


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The URI of something that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Iterator[LiveServer]:
    """A running server, started once for a test module."""
    root = tmp_path_factory.mktemp("server") / "a store? %20 #ü"
    root.mkdir()
    shutil.copy(empty_database, root / "mlflow.db")
    live = LiveServer(root)
    live.start()
    yield live
    if live.process.poll() is None:
        assert live.stop() == 0
