"""A cache makes each value once."""

from __future__ import annotations

import pytest

from fope_lab.config.cache import Cache


def test_a_cache_makes_each_value_once_and_remembers_a_value_error() -> None:
    cache, made = Cache(), list[str]()

    def make(name: str) -> str:
        made.append(name)
        if name == "wrong":
            raise ValueError(name)
        return name.upper()

    for _ in range(2):
        assert cache.get("a", lambda: make("a")) == "A"
        with pytest.raises(ValueError, match="wrong"):
            cache.get("b", lambda: make("wrong"))
    assert made == ["a", "wrong"]
