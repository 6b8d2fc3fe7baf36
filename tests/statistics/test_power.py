"""How many seeds would decide a claim, beside published tables and scipy's distributions."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from fope_lab.report.claims.judge import WouldDecide
from fope_lab.statistics.decision import Bound, seeds_needed, t_power


def bound(effect: float, side: str = "greater") -> Bound:
    """Differences whose mean is so many deviations above 0."""
    return Bound((effect - 1, effect, effect + 1), 0.0, side)  # type: ignore[arg-type]


@given(st.integers(2, 300), st.floats(-3, 3), st.sampled_from([0.05, 0.025, 0.005]))
def test_power_is_scipys(n: int, effect: float, alpha: float) -> None:
    critical = scipy.stats.t.ppf(1 - alpha, n - 1)
    expected = scipy.stats.nct.sf(critical, n - 1, effect * np.sqrt(n))
    assert t_power(n, effect, alpha) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("effect", "n"), [(0.2, 199), (0.5, 34), (0.8, 15), (1.0, 10)])
def test_numbers_of_pairs_are_those_of_the_tables(effect: float, n: int) -> None:
    """Two-sided at 0.05 with power 0.8, as G*Power 3.1 gives them for matched pairs."""
    assert seeds_needed([bound(effect)], two_sided=True, alpha=0.05) == n
    assert seeds_needed([bound(-effect, "less")], two_sided=True, alpha=0.05) == n
    assert seeds_needed([bound(-effect)], two_sided=True, alpha=0.05) == n  # it is to fail


@pytest.mark.parametrize(("effect", "n"), [(0.2, 156), (0.5, 27), (0.8, 12)])
def test_one_sided_tests_need_fewer(effect: float, n: int) -> None:
    assert seeds_needed([bound(effect)], two_sided=False, alpha=0.05) == n


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
