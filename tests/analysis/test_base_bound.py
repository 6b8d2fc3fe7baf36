"""The bound of the base against sums of cosines, one by one, and where these have a closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fope_lab.analysis import parse_analysis
from fope_lab.analysis.base_bound import cosine_sums, first_negative, published_fit
from fope_lab.data.problems import DataError


def one_by_one(base: float, head_dim: int, distance: int) -> float:
    angles = (distance * base ** (-2 * i / head_dim) for i in range(head_dim // 2))
    return math.fsum(math.cos(angle) for angle in angles)


@settings(deadline=None)
@given(
    base=st.floats(1.5, 1e7),
    head_dim=st.integers(1, 64).map(lambda pairs: 2 * pairs),
    start=st.integers(0, 30_000),
)
def test_sums_are_those_of_each_cosine(base: float, head_dim: int, start: int) -> None:
    found = cosine_sums(np.array([base, 7.0]), start, 2, head_dim)
    assert found.shape == (2, 512)
    for place in (0, 1, 255, 256, 511):
        expected = one_by_one(base, head_dim, start + place)
        assert found[0, place] == pytest.approx(expected, abs=1e-8)


def test_a_single_pair_turns_back_after_a_quarter_of_a_cycle() -> None:
    """cos m is negative from m = 2 on, whatever the base."""
    assert first_negative(np.array([2.0, 1e4]), 2, 100).tolist() == [2, 2]
    assert first_negative(np.array([2.0, 1e4]), 2, 1).tolist() == [2, 2]


def test_two_pairs_are_a_product_of_cosines() -> None:
    """cos m + cos(m·θ) = 2·cos(m(1 + θ)/2)·cos(m(1 − θ)/2)."""
    bases = np.array([5.0, 37.0, 1e3, 1e6])
    found = first_negative(bases, 4, 5000)
    m = np.arange(5001)
    for base, distance in zip(bases, found, strict=True):
        theta = base**-0.5
        product = np.cos(m * (1 + theta) / 2) * np.cos(m * (1 - theta) / 2)
        assert distance == np.flatnonzero(product < 0)[0]


def test_a_base_holds_up_to_the_distance_before_its_first_negative_sum() -> None:
    bases = np.array([500.0, 3e3, 1e4])
    found = first_negative(bases, 128, 4096)
    for base, distance in zip(bases, found.tolist(), strict=True):
        sums = [one_by_one(base, 128, m) for m in range(distance + 1)]
        assert min(sums[:-1]) >= 0 > sums[-1]
        assert first_negative(np.array([base]), 128, distance - 1).tolist() == [distance]
        assert first_negative(np.array([base]), 128, distance).tolist() == [distance]


def test_the_smallest_base_holds_and_a_larger_one_fails_again() -> None:
    analysis = parse_analysis(
        {"type": "base-bound", "lengths": [2048, 1024], "step": 0.02, "most": 1e5}
    )
    arrays = analysis.compute(None, lambda done, total: None)
    numbers = analysis.numbers(arrays)
    assert arrays["lengths"].tolist() == [1024, 2048]
    for length, smallest, failing in ((1024, 5.6e3, 6.0e3), (2048, 1.5e4, 2.2e4)):
        found = numbers[f"smallest_{length}"]
        assert found == pytest.approx(smallest, rel=0.04)
        assert min(one_by_one(found, 128, m) for m in range(length + 1)) >= 0
        assert min(one_by_one(found / 1.02, 128, m) for m in range(length + 1)) < 0
        last = numbers[f"last_failing_{length}"]
        assert last == pytest.approx(failing, rel=0.04)
        assert last > found
        assert min(one_by_one(last, 128, m) for m in range(length + 1)) < 0
        assert min(one_by_one(last * 1.02, 128, m) for m in range(length + 1)) >= 0
    slope = math.log(numbers["smallest_2048"] / numbers["smallest_1024"]) / math.log(2)
    assert numbers["exponent"] == pytest.approx(slope, rel=1e-9)
    assert numbers["factor"] * 1024**slope == pytest.approx(numbers["smallest_1024"], rel=1e-9)


def test_the_published_fit_doubles_as_a_power() -> None:
    fit = published_fit(np.array([1, 2, 1000]))
    assert fit[0] == 0.0424
    assert fit[1] / fit[0] == pytest.approx(2**1.628)
    assert fit[2] == pytest.approx(math.exp(math.log(0.0424) + 1.628 * math.log(1000)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_dim": 7}, "head_dim: found 7, needs an even number"),
        ({"lengths": []}, "lengths"),
        ({"lengths": [64, 64]}, "lengths"),
        ({"step": 0}, "step: found 0"),
        ({"most": 5}, "most: found 5"),
    ],
)
def test_what_cannot_be_computed_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_analysis({"type": "base-bound", **options})


def test_a_grid_without_a_base_for_a_length_is_an_error() -> None:
    analysis = parse_analysis({"type": "base-bound", "lengths": [64, 2048], "most": 1e3})
    with pytest.raises(DataError, match=r"most: found 1000: no base up to it holds for 2048"):
        analysis.compute(None, lambda done, total: None)
