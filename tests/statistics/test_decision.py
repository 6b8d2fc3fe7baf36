"""Holm's correction beside its definition, verdicts by chance, and how many seeds would decide."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from fope_lab.report.claims.judge import WouldDecide
from fope_lab.statistics.decision import Bound, chance_rate, holm, seeds_needed, t_power

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


@given(ps)
def test_the_adjusted_keep_their_order_and_are_no_smaller(values: list[float | None]) -> None:
    pairs = [
        (p, q) for p, q in zip(values, holm(values), strict=True) if p is not None or q is not None
    ]
    assert all(p is not None and q is not None and p <= q <= 1 for p, q in pairs)
    assert [q for _, q in sorted(pairs)] == sorted(q for _, q in pairs)


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
