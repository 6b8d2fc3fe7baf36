"""The classes of a package by the name that a sweep file gives them.

An exported model contains a copy of this module, so it uses the standard library only.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from fope_lab.config.discovery import discover

T = TypeVar("T")


class NamedTypes(Generic[T]):
    """Frozen dataclasses by name. Defining one registers it, so a new file needs no other change.

    The modules of `package` are imported when the classes are first asked for; modules named in
    `skip` define none.
    """

    def __init__(self, package: str, skip: tuple[str, ...] = ()) -> None:
        self._package, self._skip = package, skip
        self._types: dict[str, type[T]] = {}
        self._sorted: dict[str, type[T]] = {}

    def register(self, name: str, kind: type[T]) -> None:
        """Add a class. Raises ValueError if another class has the name."""
        taken = self._types.get(name)
        if taken is not None and _identity(taken) != _identity(kind):
            raise ValueError(f"{name!r} is already the name of {'.'.join(_identity(taken))}")
        self._types[name] = kind
        self._sorted = {}

    def all(self) -> Mapping[str, type[T]]:
        """Every class, in an order that does not depend on what was imported first."""
        discover(self._package, self._skip)
        if self._sorted.keys() != self._types.keys():
            self._sorted = dict(sorted(self._types.items()))
        return self._sorted


def given_options(value: Any) -> dict[str, Any]:
    """The options of an instance that differ from their defaults, as JSON values.

    An option that is added later, with a default, leaves what is written here as it was.
    """
    options: dict[str, Any] = {}
    kind: Any = type(value)
    for name, default in _defaults(kind):
        given = getattr(value, name)
        if given != default:
            options[name] = _plain(given)
    return options


@functools.cache
def _defaults(kind: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.default) for field in dataclasses.fields(kind))


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.canonical() if hasattr(value, "canonical") else value


def _identity(kind: type[Any]) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__
