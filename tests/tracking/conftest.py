"""A store with an MLflow database, and a server started once for a test module."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy
from tracking_scene import LiveServer, Scene, empty_database, scene

__all__ = ["empty_database", "scene"]


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk() -> None:
    """No test here cuts the power, and most of their time would be the disk's."""
    sqlalchemy.event.listen(
        sqlalchemy.Engine, "connect", lambda raw, _: raw.execute("PRAGMA synchronous = OFF")
    )


@pytest.fixture
def second_scene(tmp_path: Path) -> Callable[[str], Scene]:
    """Another empty store that uses the MLflow at a given URI."""
    return lambda uri: Scene(tmp_path / "second", uri)


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
