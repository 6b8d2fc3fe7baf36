"""Work done once: results by what they follow from, and by the object that they are about."""

from __future__ import annotations

import dataclasses
import pickle
from dataclasses import dataclass, field
from typing import Any

import pytest

from fope_lab.config.cache import Cache, once_for_each


@dataclass(frozen=True)
class Part:
    """A frozen dataclass that can't be hashed, as most sections."""

    options: dict[str, int] = field(default_factory=dict)


ASKED: list[Part] = []


@once_for_each
def total(part: Any) -> int:
    """The sum of a part's options; it notes each time that it is asked for."""
    ASKED.append(part)
    return sum(part.options.values())


@pytest.fixture(autouse=True)
def _not_asked() -> None:
    ASKED.clear()


def test_a_result_is_computed_once_for_each_object() -> None:
    part, equal = Part({"a": 1, "b": 2}), Part({"a": 1, "b": 2})
    assert [total(part), total(part), total(equal)] == [3, 3, 3]
    assert [id(each) for each in ASKED] == [id(part), id(equal)]


def test_a_changed_copy_has_a_result_of_its_own() -> None:
    part = Part({"a": 1})
    assert total(part) == 1
    assert total(dataclasses.replace(part, options={"a": 5})) == 5


def test_what_is_kept_does_not_show() -> None:
    part, fresh = Part({"a": 1}), Part({"a": 1})
    total(part)
    assert part == fresh
    assert repr(part) == repr(fresh)
    assert dataclasses.asdict(part) == dataclasses.asdict(fresh)
    assert pickle.loads(pickle.dumps(part)) == fresh


def test_an_error_is_not_kept() -> None:
    wrong = Part({"a": "many"})  # type: ignore[dict-item]
    for _ in range(2):
        with pytest.raises(TypeError):
            total(wrong)
    assert len(ASKED) == 2


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
