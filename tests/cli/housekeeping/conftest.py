"""A store that has recorded a sweep."""

from __future__ import annotations

from pathlib import Path

import pytest
from kept_sweep import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """The sweep of kept_sweep.py, of which nothing has run."""
    return Scene(tmp_path)
