"""Mappings become frozen dataclasses, and their JSON Schema accepts what the reader accepts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter, ValidationError

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.cache import Cache
from fope_lab.config.checks import Parsed
from fope_lab.config.options import entry_of, options_of
from fope_lab.config.problems import ConfigError, Problem


def parse_shade(value: Any, base: Path) -> str:
    if value not in ("dark", "light"):
        raise ConfigError(Problem((), f"found {value!r}", "a shade"))
    return f"{base.name}/{value}"


def shade_schema() -> dict[str, Any]:
    return {"enum": ["dark", "light"]}


@dataclass(frozen=True, kw_only=True)
class Brush:
    """A brush.

    Not in the schema.
    """

    width: Annotated[int, Interval(ge=1, le=9), Doc("The width in millimetres.")]
    force: Annotated[float, Interval(gt=0)] | None = None
    mode: Literal["dry", "wet"] = "dry"
    sizes: tuple[int, ...] = ()
    shade: Annotated[str, Parsed(parse_shade, shade_schema)] = "base/dark"

    def __post_init__(self) -> None:
        if self.mode == "wet" and self.width == 1:
            raise ValueError("a wet brush of width 1 draws nothing")


BRUSH = entry_of(Brush, "a brush")


def problems_of(given: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        BRUSH.read(given, Path("base"))
    return [str(problem) for problem in caught.value.problems]


def test_what_is_given_is_read_and_the_rest_is_default() -> None:
    given = {"width": 2, "force": 1, "sizes": [3, 4], "shade": "light"}
    expected = Brush(width=2, force=1.0, sizes=(3, 4), shade="base/light")
    assert BRUSH.read(given, Path("base")) == expected
    assert BRUSH.read({"width": 3}) == Brush(width=3)


@pytest.mark.parametrize(
    ("given", "problems"),
    [
        ({}, ["width: is missing: a brush needs it"]),
        ({"width": True}, ["width: found true, needs a whole number"]),
        ({"width": 1, "shade": "red"}, ["shade: found 'red', needs a shade"]),
        ({"width": 1, "mode": "wet"}, ["a wet brush of width 1 draws nothing"]),
        ({"widht": 1, "force": -1},
         ["widht: unknown option 'widht' of a brush; did you mean 'width'? "
         "(allowed: force, mode, shade, sizes, width)", "force: found -1, needs more than 0",
         "width: is missing: a brush needs it"]),
    ],
)  # fmt: skip
def test_every_problem_is_told_with_its_place(given: dict[str, Any], problems: list[str]) -> None:
    assert problems_of(given) == problems


def test_a_presets_values_are_defaults() -> None:
    preset = Brush(width=4, mode="wet")
    entry = entry_of(Brush, "the preset", preset)
    assert entry.required == []
    assert entry.read({}) == preset
    assert entry.read({"force": 2}) == Brush(width=4, mode="wet", force=2.0)
    assert entry.json_schema()["properties"]["width"]["default"] == 4


def test_the_schema_has_defaults_and_meanings() -> None:
    schema = BRUSH.json_schema({"type": "brush"})
    assert schema["description"] == "A brush."
    assert schema["required"] == ["type", "width"]
    assert schema["properties"]["width"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 9,
        "description": "The width in millimetres.",
    }
    assert schema["properties"]["mode"]["default"] == "dry"
    assert schema["properties"]["sizes"]["default"] == []
    assert "default" not in schema["properties"]["force"]
    assert schema["properties"]["shade"]["enum"] == ["dark", "light"]
    assert options_of(Brush)["width"].doc == "The width in millimetres."
    assert options_of(Brush)["mode"].doc == ""


values = st.sampled_from(
    [None, True, 0, 1, 5, 9, 10, 0.5, -1, "dry", "wet", "dark", "x", [], [1], ["a"], [1.5], {}]
)


@given(st.dictionaries(st.sampled_from(["width", "force", "mode", "sizes", "shade", "x"]), values))
def test_the_schema_accepts_what_the_reader_accepts(given: dict[str, Any]) -> None:
    try:
        BRUSH.values(given)
    except ConfigError:
        accepted = False
    else:
        accepted = True
    assert Draft202012Validator(BRUSH.json_schema()).is_valid(given) == accepted


ENDS = st.none() | st.integers(-5, 5)


def accepts(interval: Interval, value: float) -> bool:
    try:
        TypeAdapter(Annotated[float, interval]).validate_python(value)
    except ValidationError:
        return False
    return True


@given(ge=ENDS, gt=ENDS, le=ENDS, lt=ENDS, value=st.floats(-6, 6) | st.integers(-6, 6).map(float))
def test_an_interval_has_the_numbers_between_its_ends(
    ge: int | None, gt: int | None, le: int | None, lt: int | None, value: float
) -> None:
    inside = (
        (ge is None or value >= ge)
        and (gt is None or value > gt)
        and (le is None or value <= le)
        and (lt is None or value < lt)
    )
    assert accepts(Interval(ge=ge, gt=gt, le=le, lt=lt), value) == inside


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_number_in_an_interval_is_finite(value: float) -> None:
    assert not accepts(Interval(), value)


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
