"""Remember results that many grid points need."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class Cache:
    """Cached results by their inputs; a ValueError is cached too, and raised again."""

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
