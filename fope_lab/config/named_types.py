"""The classes of a package by the name that a sweep file gives them.

An exported model contains a copy of this module, so it uses the standard library only.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

from fope_lab.config.discovery import discover
from fope_lab.config.problems import NameTakenError

T = TypeVar("T")


class NamedTypes(Generic[T]):
    """Frozen dataclasses by name. Defining one registers it, so a new file needs no other change.

    The modules of `packages`, but those in `skip`, are imported when the classes are first asked
    for. Plug-ins register theirs in the same way (plugins.py).
    """

    def __init__(self, *packages: str, skip: tuple[str, ...] = ()) -> None:
        self._packages, self._skip = packages, skip
        self._types: dict[str, type[T]] = {}
        self._sorted: dict[str, type[T]] = {}
        self._presets: frozenset[str] = frozenset()

    def register(self, name: str, kind: type[T]) -> None:
        """Add a class. Raises NameTakenError if another class, or a preset, has the name."""
        taken, (module, own) = self._types.get(name), _identity(kind)
        if taken is not None and _identity(taken) != (module, own):
            has = ".".join(_identity(taken))
            raise NameTakenError(f"{own} can't be {name!r}, which is the name of {has}")
        if name in self._presets and not module.startswith("fope_lab."):
            raise NameTakenError(f"{own} can't be {name!r}, which is the name of a preset")
        self._types[name] = kind
        self._sorted = {}

    def reserve(self, presets: Iterable[str]) -> None:
        """Keep names of presets from plug-ins, whichever come first. Raises NameTakenError."""
        self._presets = frozenset(presets)
        for name in self._presets & self._types.keys():
            self.register(name, self._types[name])

    def registered(self) -> dict[str, type[T]]:
        return dict(self._types)

    def restore(self, types: Mapping[str, type[T]]) -> None:
        self._types, self._sorted = dict(types), {}

    def discover(self) -> None:
        for package in self._packages:
            discover(package, self._skip)

    def all(self) -> Mapping[str, type[T]]:
        """Every class, in an order that does not depend on what was imported first."""
        self.discover()
        if self._sorted.keys() != self._types.keys():
            self._sorted = dict(sorted(self._types.items()))
        return self._sorted


def given_options(value: Any) -> dict[str, Any]:
    """The options that differ from their defaults, so that a later one changes nothing written."""
    kind: Any = type(value)
    given = ((name, default, getattr(value, name)) for name, default in _defaults(kind))
    return {name: _plain(own) for name, default, own in given if own != default}


@functools.cache
def _defaults(kind: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.default) for field in dataclasses.fields(kind))


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.canonical() if hasattr(value, "canonical") else value


def _identity(kind: type[Any]) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__
