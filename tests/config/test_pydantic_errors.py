"""Every error of pydantic about an option is told in our words, and at its place in the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Len, MinLen
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, ValidationError
from sections import read_section

from fope_lab.config.annotations import Interval
from fope_lab.config.options import Option, options_of
from fope_lab.config.problems import ConfigError, Problem
from fope_lab.config.pydantic_errors import NEEDS


def even(value: int) -> int:
    if value % 2:
        raise ValueError(f"found {value}, needs an even number")
    if value == 4:
        raise ConfigError(Problem(("half",), "is square"))
    return value


@dataclass(frozen=True)
class Leaf:
    size: Annotated[float, Interval(gt=0, le=10)]
    color: Literal["red", "blue"] = "red"


@dataclass(frozen=True)
class Tree:
    leaves: Annotated[tuple[Leaf, ...], Len(1, 2)]
    name: Annotated[str, MinLen(1)] = "x"
    from_: str | None = field(default=None, metadata={"option": "from"})
    either: int | list[str] = 0
    by_name: dict[str, Annotated[int, AfterValidator(even)]] = field(default_factory=dict)
    pair: tuple[int, Literal["a", "b"]] = (0, "a")


LEAF = {"size": 1}
NAN = float("nan")


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        ({"leaves": []}, ["leaves: found [], needs at least one entry"]),
        ({"leaves": [LEAF] * 3},
         ["leaves: found [{'size': 1}, {'size': 1}, {'size': 1}], needs at most 2 entries"]),
        ({"leaves": [{"size": -1}]}, ["leaves[0].size: found -1, needs more than 0"]),
        ({"leaves": [{"size": 10.5}]}, ["leaves[0].size: found 10.5, needs at most 10"]),
        ({"leaves": [{"size": float("nan")}]},
         ["leaves[0].size: found nan, needs a finite number"]),
        ({"leaves": [{}]}, ["leaves[0].size: is missing"]),
        ({"leaves": [3]}, ["leaves[0]: found 3, needs a mapping"]),
        ({"leaves": [{**LEAF, "color": "blu"}]},
         ["leaves[0].color: found 'blu'; did you mean 'blue'? (allowed: red, blue)"]),
        ({"leaves": [{**LEAF, "colo": "red"}]},
         ["leaves[0].colo: unknown key 'colo'; did you mean 'color'? (allowed: color, size)"]),
        ({"leaves": [LEAF], "name": ""}, ["name: found '', needs text that is not empty"]),
        ({"leaves": [LEAF], "from": 3}, ["from: found 3, needs text"]),
        ({"leaves": [LEAF], "either": None},
         ["either: found nothing, needs a whole number or a list"]),
        ({"leaves": [LEAF], "by_name": {"a": 1}}, ["by_name.a: found 1, needs an even number"]),
        ({"leaves": [LEAF], "by_name": {"a": 4}}, ["by_name.a.half: is square"]),
        ({"leaves": [LEAF], "by_name": []}, ["by_name: found [], needs a mapping"]),
        ({"leaves": [LEAF], "pair": [0, "c"]}, ["pair[1]: found 'c' (allowed: a, b)"]),
        ({"leaves": [LEAF], "form": 3},
         ["form: unknown key 'form'; did you mean 'from'? (allowed: by_name, "
         "either, from, leaves, name, pair)"]),
    ],
)  # fmt: skip
def test_an_error_is_told_in_our_words(value: Any, texts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        read_section(Tree, value)
    assert list(map(str, caught.value.problems)) == texts


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=5,
)


@given(st.sampled_from(list(options_of(Tree).values())), anything)
def test_every_type_of_error_has_words(option: Option, value: Any) -> None:
    error = None
    try:
        option.read(value)
    except ConfigError as raised:
        error = raised
    if error is not None:
        assert all(problem.message for problem in error.problems)
        assert isinstance(error.__cause__, ValidationError)
        types = {detail["type"] for detail in error.__cause__.errors()}
        assert types <= {*NEEDS, "value_error", "literal_error", "missing"}
