"""Fixtures of the report's tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fope_lab.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is about power failures, and a sample has hundreds of files."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
