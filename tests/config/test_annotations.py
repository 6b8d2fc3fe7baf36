"""An interval lets the numbers between its ends pass, and no others."""

from __future__ import annotations

import math
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from fope_lab.config.annotations import Interval

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


def test_an_interval_is_written_with_its_ends() -> None:
    assert str(Interval(gt=0, le=1)) == "> 0, ≤ 1"
