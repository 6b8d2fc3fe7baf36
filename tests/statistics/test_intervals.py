"""Means and their intervals beside scipy's and printed tables."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fope_lab.statistics.intervals import estimate_mean

finite = st.floats(-1e12, 1e12)


def test_interval_by_hand() -> None:
    # n = 3: t(0.975, 2) = 4.302653 from the printed tables; s = 1, so ± 4.302653 / √3
    estimate = estimate_mean([1.0, 2.0, 3.0])
    assert estimate.mean == 2.0
    assert estimate.half_width == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)


@given(st.lists(finite, min_size=2, max_size=8), st.randoms())
def test_order_of_seeds_does_not_matter(values: list[float], random: Random) -> None:
    shuffled = random.sample(values, len(values))
    assert estimate_mean(values) == estimate_mean(shuffled)


@given(st.lists(finite, min_size=2, max_size=8))
def test_mean_lies_inside_values_and_interval(values: list[float]) -> None:
    estimate = estimate_mean(values)
    assert estimate.mean is not None
    assert min(values) <= estimate.mean <= max(values)
    assert estimate.ci95 is not None
    assert estimate.ci95[0] <= estimate.mean <= estimate.ci95[1]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_one_value_has_no_interval(value: float) -> None:
    estimate = estimate_mean([value])
    assert (estimate.n, estimate.mean, estimate.ci95) == (1, value, None)


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(2, 9))
def test_equal_values_have_an_interval_without_width(value: float, n: int) -> None:
    assert estimate_mean([value] * n).ci95 == (value, value)


@pytest.mark.parametrize("values", [[], *([1.0, x, 2.0] for x in (math.nan, math.inf, -math.inf))])
def test_nothing_and_what_is_not_finite_have_neither_mean_nor_interval(values: list[float]) -> None:
    estimate = estimate_mean(values)
    assert (estimate.n, estimate.mean, estimate.ci95) == (len(values), None, None)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=5))
@example([1.7976931348623155e308, -7.446288774449769e307])
def test_no_finite_values_overflow(values: list[float]) -> None:
    estimate = estimate_mean(values)
    assert estimate.mean is not None
    assert math.isfinite(estimate.mean)
    assert estimate.ci95 is None or all(map(math.isfinite, estimate.ci95))
