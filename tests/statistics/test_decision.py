"""The decision of a claim: scipy's p-values, Holm's correction, and power."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st

from fope_lab.report.claims.judge import WouldDecide
from fope_lab.statistics.decision import (
    STUDENT_T,
    Bound,
    Side,
    chance_rate,
    decide,
    holm,
    seeds_needed,
    t_power,
)
from fope_lab.statistics.intervals import estimate_mean

numbers = st.floats(-1e6, 1e6)


def verdict(tests: Sequence[Sequence[float]], side: Side = "greater") -> tuple[str, float | None]:
    """The verdict on a chain with these differences, and its p-value."""
    outcome = decide([Bound(one, 0.0, side) for one in tests], STUDENT_T, two_sided=True)
    return ("undecided", None) if outcome is None else (outcome.verdict(outcome.p), outcome.p)


def two_sided(differences: Sequence[float]) -> float | None:
    return verdict([differences])[1]


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


ps = st.lists(st.none() | st.floats(0, 1), max_size=12)


@given(ps, st.floats(1e-6, 1))
def test_adjusted_below_alpha_is_what_holms_steps_reject(
    values: list[float | None], alpha: float
) -> None:
    """Step by step, as in the paper: compare the smallest p with α / m, the next with
    α / (m − 1), until one is not below."""
    left = sorted((p, i) for i, p in enumerate(values) if p is not None)
    rejected = set()
    for step, (p, i) in enumerate(left):
        if not (len(values) - step) * p < alpha:
            break
        rejected.add(i)
    adjusted = holm(values)
    assert {i for i, p in enumerate(adjusted) if p is not None and p < alpha} == (
        rejected if alpha < 1 else {i for i in rejected if adjusted[i] < 1}
    )


def test_a_published_example() -> None:
    """p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05), "holm") of R."""
    assert holm([0.01, 0.02, 0.03, 0.04, 0.05]) == pytest.approx([0.05, 0.08, 0.09, 0.09, 0.09])


def test_what_was_not_tested_counts() -> None:
    assert holm([0.02, None, None]) == [0.06, None, None]
    assert holm([]) == []


def test_rates_of_chance() -> None:
    assert chance_rate(1, two_sided=True) == pytest.approx(0.05)
    assert chance_rate(2, two_sided=True) == pytest.approx(0.025 + 0.025**2)
    assert chance_rate(4, two_sided=False) == pytest.approx(0.05)


# How many seeds would decide a claim


def bound(effect: float, side: str = "greater") -> Bound:
    """Differences whose mean is so many deviations above 0."""
    return Bound((effect - 1, effect, effect + 1), 0.0, side)  # type: ignore[arg-type]


@given(st.integers(2, 300), st.floats(-3, 3), st.sampled_from([0.05, 0.025, 0.005]))
def test_power_is_scipys(n: int, effect: float, alpha: float) -> None:
    critical = scipy.stats.t.ppf(1 - alpha, n - 1)
    expected = scipy.stats.nct.sf(critical, n - 1, effect * np.sqrt(n))
    assert t_power(n, effect, alpha) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("n", "effect", "power"), [(2, -9.5, 0.0), (931, 1.25, 1.0)])
def test_power_far_out_where_scipy_has_no_number(n: int, effect: float, power: float) -> None:
    assert t_power(n, effect, 0.025) == pytest.approx(power, abs=1e-9)


@pytest.mark.parametrize(("effect", "n"), [(0.2, 199), (0.5, 34), (0.8, 15), (1.0, 10)])
def test_numbers_of_pairs_are_those_of_the_tables(effect: float, n: int) -> None:
    """Two-sided at 0.05 with power 0.8, as G*Power 3.1 gives them for matched pairs."""
    assert seeds_needed([bound(effect)], two_sided=True, alpha=0.05) == n
    assert seeds_needed([bound(-effect, "less")], two_sided=True, alpha=0.05) == n
    assert seeds_needed([bound(-effect)], two_sided=True, alpha=0.05) == n  # it is to fail
    one_sided = {0.2: 156, 0.5: 27, 0.8: 12}.get(effect)
    assert one_sided in (None, seeds_needed([bound(effect)], two_sided=False, alpha=0.05))


@given(st.floats(0.1, 3), st.booleans())
def test_one_seed_fewer_is_not_enough(effect: float, two_sided: bool) -> None:
    n = seeds_needed([bound(effect)], two_sided=two_sided, alpha=0.05)
    level = 0.025 if two_sided else 0.05
    if n is None:
        assert t_power(1000, effect, level) < 0.8
        return
    assert t_power(n, effect, level) >= 0.8
    assert n == 2 or t_power(n - 1, effect, level) < 0.8


def test_a_pair_without_spread_leaves_the_other_to_decide() -> None:
    apart = Bound((0.25, 0.25, 0.25), 0.0, "greater")
    assert seeds_needed([apart, bound(0.1)], two_sided=True, alpha=0.05) == seeds_needed(
        [bound(0.1)], two_sided=True, alpha=0.05
    )
    assert seeds_needed([apart, bound(-0.01)], two_sided=True, alpha=0.05) is None
    assert seeds_needed([apart], two_sided=True, alpha=0.05) == 6  # 2 · 2⁻⁶ < 0.05


def test_no_difference_needs_more_than_a_thousand() -> None:
    assert seeds_needed([bound(0.0)], two_sided=True, alpha=0.05) is None
    assert seeds_needed([bound(0.05)], two_sided=True, alpha=0.05) is None
    assert (
        WouldDecide(None, None, None).words == "more than 1,000 seeds would be needed to decide it"
    )


def test_several_bounds_need_more_than_each() -> None:
    alone = seeds_needed([bound(0.8)], two_sided=False, alpha=0.05)
    both = seeds_needed([bound(0.8), bound(0.8)], two_sided=False, alpha=0.05)
    assert alone is not None
    assert both is not None
    assert both > alone
    # one of them is on the other side: the claim is to fail by it, at half of α
    fails = seeds_needed([bound(0.8), bound(-0.8)], two_sided=False, alpha=0.05)
    assert fails == seeds_needed([bound(0.8)], two_sided=False, alpha=0.025)
