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
    return one is other or comparable(one) == comparable(other)


def comparable(value: Any) -> str:
    """Return a text that equal values have in common, and no others."""
    return json.dumps(_exact(value))


def _exact(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _exact(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_exact(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
