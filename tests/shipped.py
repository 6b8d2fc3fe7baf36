"""The sweep files that are shipped, each read once for all tests."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from docs.generate.shipped import load_shipped
from fope_lab.sweep.graph import Stage

ROOT = Path(__file__).parents[1] / "sweeps"
FILES = sorted(ROOT.rglob("*.yaml"))
sweep_of = functools.cache(load_shipped)


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
