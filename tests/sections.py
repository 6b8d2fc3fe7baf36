"""A section of a sweep file, read as the resolver reads it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from fope_lab.config.options import entry_of

T = TypeVar("T")


def read_section(kind: type[T], given: Mapping[str, Any]) -> T:
    """The section that a mapping makes; the name of a stage's kind may stand in it."""
    return entry_of(kind).read({k: v for k, v in given.items() if k != "kind"}, Path.cwd())
