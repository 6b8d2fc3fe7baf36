"""Work that a grid asks for again and again, done once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


def once_for_each(function: Callable[[Any], T]) -> Callable[[Any], T]:
    """What a function of one object returns, computed once for each object and kept with it.

    It is for frozen dataclasses: many have fields that can't be hashed, and no value of them ever
    changes. Callers share what is returned, and must not change it.
    """
    place = f"_{function.__module__}.{function.__qualname__}"  # no field has a dot in its name

    @functools.wraps(function)
    def kept(value: Any) -> T:
        there = vars(value)
        if place not in there:
            there[place] = function(value)
        found: T = there[place]
        return found

    return kept


class Cache:
    """Results by what they follow from; a ValueError is remembered too, and raised again."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[Any, ValueError | None]] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` returns or raises; it is called once for each `key`."""
        if key not in self._known:
            try:
                self._known[key] = make(), None
            except ValueError as error:
                self._known[key] = None, error
        value, problem = self._known[key]
        if problem is not None:
            raise problem
        return value
