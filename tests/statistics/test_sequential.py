"""The test of repeated looks: its critical values by other integrals, its errors by simulation."""

from __future__ import annotations

import functools
import math
from itertools import pairwise

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from fope_lab.statistics.decision import ALPHA, STUDENT_T
from fope_lab.statistics.sequential import LEVELS, SequentialT, boundary, repeated_p, share_spent

PATHS = 100_000
"""Simulated experiments of equal models."""
MOST = 20
"""The last look of the simulated experiments."""
Array = np.ndarray


@functools.cache
def t_paths(first: int, seed: int) -> Array:
    """The t statistics at `first` … MOST seeds, (PATHS, looks), of equal models."""
    x = np.random.default_rng(seed).standard_normal((PATHS, MOST))
    n = np.arange(1, MOST + 1)
    mean = x.cumsum(axis=1) / n
    squares = np.maximum((x**2).cumsum(axis=1) - n * mean**2, 1e-300)
    return (mean * np.sqrt(n * np.maximum(n - 1, 1) / squares))[:, first - 1 :]


def critical_values(first: int, level: float) -> Array:
    return np.array([boundary(first, level).critical(n) for n in range(first, MOST + 1)])


def within(rate: float, expected: float) -> bool:
    """Whether a simulated rate is what chance gives, but for one time in 100,000."""
    low, high = scipy.stats.binom.ppf([5e-6, 1 - 5e-6], PATHS, expected)
    return bool(low <= round(rate * PATHS) <= high)


def test_the_share_is_spent_little_by_little_and_never_more_than_all() -> None:
    shares = [share_spent(n) for n in range(2, 10_000)]
    assert all(one < other for one, other in pairwise(shares))
    assert [share_spent(5), share_spent(10), share_spent(20)] == [0.2, 0.5, 0.8]
    assert shares[-1] < 1


@pytest.mark.parametrize("first", [2, 3, 5, 12])
@pytest.mark.parametrize("level", [1e-5, 0.05, 0.9])
def test_the_first_look_is_student_at_its_share_of_the_level(first: int, level: float) -> None:
    quantile = scipy.stats.t.isf(level * share_spent(first) / 2, first - 1)
    assert boundary(first, level).critical(first) == pytest.approx(quantile, rel=1e-4)


@pytest.mark.parametrize("first", [2, 3, 5, 12])
@pytest.mark.parametrize("level", [0.01, 0.05, 0.5])
def test_the_second_look_by_another_integral(first: int, level: float) -> None:
    """Forward: over t at the first look, and over the next difference, which has Student's
    distribution in units of the first ones' root mean square."""
    inside, outside = (boundary(first, level).critical(n) for n in (first, first + 1))
    bound = (first + 1) * outside**2 / (outside**2 + first)  # (Σx)² / Σx² at the second look
    assert bound > 1

    def crosses(t: float) -> float:
        """(r + x)² ≥ bound · (1 + x²) for the next difference x, where r = Σx / √Σx² so far."""
        r = t * math.sqrt(first / (first - 1 + t * t))
        root = math.sqrt(max(0.0, bound * (r**2 + 1 - bound)))
        low, high = ((r + by) / (bound - 1) * math.sqrt(first) for by in (-root, root))
        return float(scipy.special.stdtr(first, high) - scipy.special.stdtr(first, low))

    rate, _ = scipy.integrate.quad(
        lambda t: crosses(t) * scipy.stats.t.pdf(t, first - 1), 0, inside, limit=500
    )
    expected = level * (share_spent(first + 1) - share_spent(first))
    assert 2 * rate == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("first", [2, 5, 10])
@pytest.mark.parametrize("level", [0.01, 0.05, 0.5])
def test_equal_models_are_told_apart_at_any_look_as_rarely_as_stated(
    first: int, level: float
) -> None:
    crossed = np.abs(t_paths(first, first)) >= critical_values(first, level)
    for n in (first, first + 1, 12, MOST):
        so_far = crossed[:, : n - first + 1].any(axis=1).mean()
        assert within(so_far, level * share_spent(n))


@pytest.mark.parametrize("first", [2, 5])
def test_one_side_errs_half_as_often(first: int) -> None:
    """Though a path may leave at the other side before."""
    t = t_paths(first, 7 + first)
    for level in LEVELS[6:]:
        rate = (t >= critical_values(first, level)).any(axis=1).mean()
        assert rate * PATHS <= scipy.stats.binom.ppf(1 - 1e-5, PATHS, level / 2)


@pytest.mark.parametrize("first", [2, 5])
def test_a_smaller_level_has_a_boundary_further_out(first: int) -> None:
    values = np.array([critical_values(first, level) for level in LEVELS])
    assert (np.diff(values, axis=0) < 0).all()


@pytest.mark.parametrize("first", [2, 5])
@given(n=st.integers(0, 10), t=st.floats(0.01, 1e4))
def test_p_falls_below_a_level_where_its_boundary_is_crossed(first: int, n: int, t: float) -> None:
    for level in (0.01, ALPHA / 3, ALPHA / 2, ALPHA, 0.1):
        crossed = t >= boundary(first, level).critical(first + n)
        assert (repeated_p(first, first + n, t) <= level * (1 + 1e-12)) == crossed


def test_p_grows_with_every_look() -> None:
    """The first look has it multiplied: p of Student's t by the share that the look may use."""
    t = scipy.stats.t.isf(0.05 * 0.2 / 2, 4)
    assert repeated_p(5, 5, t) == pytest.approx(0.05, rel=1e-3)
    assert repeated_p(5, 5, 1e9) == LEVELS[0]
    assert repeated_p(5, 5, 0.1) == 1


def test_p_is_the_smallest_of_all_looks_on_its_side() -> None:
    test = SequentialT(first=5)
    begins = [2.0, 2.1, 1.9, 2.05, 1.95]
    p = test.p(begins, 0.0, "greater")
    assert p is not None
    assert 0 < p < 0.025
    assert test.p([*begins, -8.0, -9.0, -7.0], 0.0, "greater") == p
    other = test.p(begins, 0.0, "less")
    assert other is not None
    assert other > 0.975
    assert test.p(begins[:4], 0.0, "greater") is None
    assert test.p(begins, 1.0, "greater") == test.p([b - 1 for b in begins], 0.0, "greater")


def test_without_a_difference_and_without_numbers_it_is_students_t() -> None:
    test = SequentialT(first=3)
    for differences in ([0.0] * 4, [1.0, math.nan, 2.0]):
        for side in ("greater", "less"):
            assert test.p(differences, 0.0, side) == STUDENT_T.p(differences, 0.0, side)
    alone, looks = STUDENT_T.p([0.25] * 6, 0.0, "greater"), test.p([0.25] * 6, 0.0, "greater")
    assert alone is not None
    assert looks is not None
    assert alone < looks < 0.5


@pytest.mark.parametrize(("n", "words"), [(4, "begins at 5"), (5, "1 look"), (9, "5 looks")])
def test_it_names_the_looks(n: int, words: str) -> None:
    assert words in SequentialT(first=5).words(n)
