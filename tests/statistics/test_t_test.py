"""The test behind verdicts: scipy's numbers, and its rates of error by simulation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st

from fope_lab.statistics.decision import STUDENT_T, Bound, Side, decide
from fope_lab.statistics.intervals import estimate_mean

SETS = 1_500
"""Simulated sets of seeds."""
numbers = st.floats(-1e6, 1e6)


def verdict(tests: Sequence[Sequence[float]], side: Side = "greater") -> tuple[str, float | None]:
    """The verdict on a chain with these differences, and its p-value."""
    outcome = decide([Bound(one, 0.0, side) for one in tests], STUDENT_T, two_sided=True)
    return ("undecided", None) if outcome is None else (outcome.verdict(outcome.p), outcome.p)


def two_sided(differences: Sequence[float]) -> float | None:
    return verdict([differences])[1]


def within(count: int, rate: float) -> bool:
    """Whether a count is what chance gives at a rate, but for one time in 100,000."""
    low, high = scipy.stats.binom.ppf([5e-6, 1 - 5e-6], SETS, rate)
    return bool(low <= count <= high)


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=8))
def test_p_and_interval_are_scipys(pairs: list[tuple[float, float]]) -> None:
    one, other = np.array(pairs).T
    differences = one - other
    assume(np.std(differences) > 1e-6 * np.abs(differences).max())
    assume(np.abs(differences).max() > 1e-140)  # scipy squares: what is smaller loses its digits
    expected = scipy.stats.ttest_rel(one, other)
    assert two_sided(differences.tolist()) == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)
    low, high = expected.confidence_interval(0.95)
    ci95 = estimate_mean(differences.tolist()).ci95
    assert ci95 == pytest.approx((low, high), rel=1e-6, abs=1e-9 * (high - low))


@given(st.lists(numbers, min_size=2, max_size=8), numbers, st.sampled_from(["greater", "less"]))
def test_one_side_of_any_value_is_scipys(values: list[float], null: float, side: Side) -> None:
    shifted = np.array(values) - null
    assume(np.std(shifted) > 1e-6 * np.abs(shifted).max())
    assume(np.abs(shifted).max() > 1e-140)
    expected = scipy.stats.ttest_1samp(values, null, alternative=side).pvalue
    assert STUDENT_T.p(values, null, side) == pytest.approx(expected, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_without_spread_it_is_the_sign_test(n: int) -> None:
    expected = scipy.stats.binomtest(n, n).pvalue
    for difference in (0.25, -1e-300):
        assert two_sided([difference] * n) == pytest.approx(expected)
    assert two_sided([0.0] * n) == 1


def test_rounding_is_no_spread() -> None:
    steps = [0.9 - 0.8, 0.8 - 0.7, 0.7 - 0.6]
    assert len(set(steps)) > 1
    assert two_sided(steps) == pytest.approx(0.25)
    tied = [0.88 - 0.9, 0.93 - 0.95, 0.58 - 0.6]
    for side in ("greater", "less"):
        assert STUDENT_T.p(tied, -0.02, side) == 0.5  # type: ignore[arg-type]


@pytest.mark.parametrize("trials", [62, 500])
def test_many_claims_about_saturated_accuracies_err_no_more_often(trials: int) -> None:
    """Of equal models: by Holm, some of 20 claims is decided in at most 5 % of the files."""
    rng, files, wrong = np.random.default_rng(trials), 200, 0
    for _ in range(files):
        differences = rng.binomial(trials, 0.995, (20, 2, 3)) / trials
        ps = [two_sided((first - other).tolist()) for first, other in differences]
        wrong += min(p for p in ps if p is not None) * len(ps) < 0.05
    assert wrong <= scipy.stats.binom.ppf(1 - 1e-5, files, 0.05)


@pytest.mark.parametrize("trials", [10, 300])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_accuracies_of_few_trials_are_not_decided_more_often(n: int, trials: int) -> None:
    """Of equal models, whose counts are now and then the same by chance."""
    rng = np.random.default_rng(trials + n)
    found = decisions(rng.binomial(trials, 0.97, (SETS, 2, n)) / trials)
    wrong = found["holds"] + found["fails"]
    assert wrong <= scipy.stats.binom.ppf(1 - 1e-5, SETS, 0.06)  # the counts are not normal


@pytest.mark.parametrize(
    "differences", [[], [1.0], [1.0, math.nan], [1.0, math.inf], [1.7e308, -1.7e308]]
)
def test_what_tells_nothing(differences: list[float]) -> None:
    assert two_sided(differences) is None
    assert verdict([differences]) == ("undecided", None)
    assert verdict([[1.0, 1.5], differences]) == ("undecided", None)


@dataclass(frozen=True)
class GivenP:
    """A test whose two-sided p is the first number, and whose mean has the second one's sign."""

    def p(self, differences: Sequence[float], null: float, side: Side) -> float:
        p, mean = differences
        toward = mean if side == "greater" else -mean
        return 0.5 if mean == 0 else p / 2 if toward > 0 else 1 - p / 2

    def words(self, n: int) -> str:
        return f"given, {n}"


@pytest.mark.parametrize(
    ("tests", "decision"),
    [
        ([(0.01, 1)], ("holds", 0.01)),
        ([(0.01, -1)], ("fails", 0.01)),
        ([(0.05, 1)], ("undecided", 0.05)),
        ([(0.06, -1)], ("undecided", 0.06)),
        ([(1.0, 0)], ("undecided", 1.0)),
        ([(0.0, 1)], ("holds", 0.0)),
        ([(0.01, 1), (0.04, 1)], ("holds", 0.04)),
        ([(0.01, 1), (0.06, 1)], ("undecided", 0.06)),
        ([(0.01, 1), (0.03, -1)], ("undecided", 0.06)),  # twice 0.03 is over α
        ([(0.01, 1), (0.02, -1)], ("fails", 0.04)),
        ([(0.3, 1), (0.01, -1), (0.001, -1)], ("fails", 0.003)),
    ],
)
def test_a_chain_needs_all_pairs_and_falls_with_one(
    tests: list[tuple[float, float]], decision: tuple[str, float]
) -> None:
    sides: dict[Side, int] = {"greater": 1, "less": -1}
    for side, sign in sides.items():
        bounds = [Bound((p, sign * mean), 0.0, side) for p, mean in tests]
        outcome = decide(bounds, GivenP(), two_sided=True)
        assert outcome is not None
        assert (outcome.verdict(outcome.p), outcome.p) == pytest.approx(decision)


def decisions(values: np.ndarray) -> Counter[str]:
    """How often the chain a > b > … of values (sets, terms, seeds) gets each verdict."""
    gaps = (values[:, :-1] - values[:, 1:]).tolist()
    return Counter(verdict(one)[0] for one in gaps)


def seeds_of(sets: int, terms: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers that a seed moves for all models alike, and for each by itself: (sets, terms, n)."""
    return 5 * rng.standard_normal((sets, 1, n)) + rng.standard_normal((sets, terms, n))


def test_a_chain_errs_no_more_often() -> None:
    """In the worst case: one pair is true beyond doubt, the other two are equal."""
    values = seeds_of(SETS, 3, 3, np.random.default_rng(10))
    worst = decisions(values + np.array([1e6, 0, 0])[:, None])
    assert within(worst["holds"], 0.025)
    assert within(worst["fails"], 0.0125)
