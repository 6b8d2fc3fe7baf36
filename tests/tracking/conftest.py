"""A store with an MLflow database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy
from tracking_scene import Scene, empty_database, scene

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
