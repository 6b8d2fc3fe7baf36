"""A name, a mapping with a name, or a shorthand stands for one of several kinds of things."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from jsonschema import Draft202012Validator

from fope_lab.config.named_types import NamedTypes, given_options
from fope_lab.config.options import Registry
from fope_lab.config.problems import ConfigError, NameTakenError


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A shape."""

    def canonical(self) -> dict[str, Any]:
        return given_options(self)


@dataclass(frozen=True, kw_only=True)
class Dot(Shape):
    """A dot."""


@dataclass(frozen=True, kw_only=True)
class Circle(Shape):
    """A circle."""

    shorthand: ClassVar[str] = "radius"

    radius: float
    inner: Shape | None = None
    points: tuple[int, ...] = ()


class ShapeError(ConfigError):
    """A wrong shape."""


@pytest.fixture
def shapes() -> Registry[Shape]:
    types: NamedTypes[Shape] = NamedTypes("fope_lab.drawing")  # a package without shapes
    types.register("dot", Dot)
    types.register("circle", Circle)
    return Registry("shape", types, error=ShapeError, presets={"unit": Circle(radius=1.0)})


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ("dot", Dot()),
        ({"type": "dot"}, Dot()),
        ("unit", Circle(radius=1.0)),
        ({"type": "unit", "points": [1]}, Circle(radius=1.0, points=(1,))),
        ({"type": "circle", "radius": 2}, Circle(radius=2.0)),
        ({"radius": 2}, Circle(radius=2.0)),
    ],
)
def test_a_description_stands_for_a_thing(
    shapes: Registry[Shape], value: Any, shape: Shape
) -> None:
    assert shapes.parse(value) == shape
    assert Draft202012Validator(shapes.json_schema()).is_valid(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("circel",
         "at: unknown shape 'circel'; did you mean 'circle'? (allowed: dot, unit, and with "
         "options circle)"),
        ({"type": "dott"},
         "at.type: unknown shape 'dott'; did you mean 'dot'? (allowed: circle, dot, unit)"),
        ({"type": 3}, "at.type: found 3, needs the shape's name (allowed: circle, dot, unit)"),
        ({"points": []}, "at.type: is missing: the shape's name (allowed: circle, dot, unit)"),
        (3, "at: found 3, needs the shape's name or a mapping with its type"),
        ("circle", "at.radius: is missing: shape circle needs it"),
        ({"radius": 1, "radios": 2},
         "at.radios: unknown option 'radios' of shape circle; did you mean 'radius'? "
         "(allowed: inner, points, radius)"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(shapes: Registry[Shape], value: Any, message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        shapes.parse(value, at=("at",))
    assert str(caught.value) == message
    assert not Draft202012Validator(shapes.json_schema()).is_valid(value)


def test_keys_of_another_reader_are_allowed_names(shapes: Registry[Shape]) -> None:
    with pytest.raises(ShapeError, match=r"did you mean 'weight'\? \(allowed: weight\)"):
        shapes.parse({"type": "dot", "wait": 1}, beside=("weight",))


def test_a_name_that_needs_no_options_may_stand_alone(shapes: Registry[Shape]) -> None:
    assert shapes.names() == ["dot", "unit"]


def test_a_name_belongs_to_one_class() -> None:
    types: NamedTypes[Shape] = NamedTypes("fope_lab.drawing")
    types.register("dot", Dot)
    types.register("dot", Dot)  # a module that is imported again
    with pytest.raises(ValueError, match=r"'dot', which is the name of .*\.Dot"):
        types.register("dot", Circle)


@pytest.mark.parametrize("presets_first", [True, False])
def test_a_class_from_outside_is_no_preset_whichever_is_imported_first(presets_first: bool) -> None:
    types: NamedTypes[Shape] = NamedTypes("fope_lab.drawing")
    steps = [lambda: types.reserve(["dot"]), lambda: types.register("dot", Dot)]
    first, second = steps if presets_first else reversed(steps)
    first()
    with pytest.raises(NameTakenError, match="Dot can't be 'dot', which is the name of a preset"):
        second()


def test_defaults_are_left_out_of_what_is_written() -> None:
    assert given_options(Circle(radius=2.0)) == {"radius": 2.0}
    assert given_options(Circle(radius=1.0, inner=Circle(radius=3.0), points=(1, 2))) == {
        "radius": 1.0,
        "inner": {"radius": 3.0},
        "points": [1, 2],
    }
