"""A section of a sweep file, read as the resolver reads it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from fope_lab.config.options import entry_of

T = TypeVar("T")


def read_section(kind: type[T], given: Mapping[str, Any], base: Path | None = None) -> T:
    """The section that a mapping makes, which may name its kind; paths start from `base`."""
    return entry_of(kind).read({k: v for k, v in given.items() if k != "kind"}, base)
