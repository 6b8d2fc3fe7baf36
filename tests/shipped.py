"""The sweep files that are shipped, each read once for all tests."""

from __future__ import annotations

import contextlib
import functools
import json
import tempfile
from pathlib import Path
from typing import Any

from fope_lab.sweep import Sweep, load_sweep
from fope_lab.sweep.graph import Stage

ROOT = Path(__file__).parents[1] / "sweeps"
FILES = sorted(ROOT.rglob("*.yaml"))
_TEXTS = tempfile.TemporaryDirectory()
"""The folder of short texts in place of those that a user provides."""
Path(_TEXTS.name, "tinyshakespeare.txt").write_text("To be, or not to be.\n\n" * 100)


@functools.cache
def sweep_of(file: Path) -> Sweep:
    """The sweep of a file, as a user has it who provides the texts that it names."""
    with contextlib.chdir(_TEXTS.name):
        return load_sweep(file)


@functools.cache
def by_key() -> dict[str, Stage]:
    """Every stage of every file, once."""
    return {stage.key: stage for file in FILES for stage in sweep_of(file).stages}


def named(file: Path) -> str:
    """What a test of a file goes by."""
    return str(file.relative_to(ROOT))


def method(value: Any) -> Any:
    """Options without their numbers, which run no other code: which parts, which options."""
    if isinstance(value, dict):
        return {name: method(item) for name, item in sorted(value.items())}
    if isinstance(value, list):
        return sorted({json.dumps(method(item)) for item in value})
    return value if isinstance(value, bool | str) else "number"
