"""A point of a sweep's grid: the value of every axis, and a seed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fope_lab.config.problems import FieldPath


@dataclass(frozen=True)
class Choice:
    """The value of one axis at a grid point, and the place in the file where the value stands."""

    value: Any
    origin: FieldPath


@dataclass(frozen=True)
class GridPoint:
    """One combination of the axes' values, under one seed."""

    choices: Mapping[str, Choice]
    seed: int


def same_value(one: Any, other: Any) -> bool:
    """Return whether two values of a sweep file are equal: 1 equals 1.0, but not `true`."""
    return one == other and json.dumps(_with_floats(one)) == json.dumps(_with_floats(other))


def _with_floats(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _with_floats(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_with_floats(item) for item in value]
    return value if isinstance(value, bool) or not isinstance(value, int) else float(value)
