"""The errors of verdicts, by simulation: benchmarks/claims.py with 150 sets instead of 20,000."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from benchmarks.claims import Rate, counts, families, power, single_claims
from fope_lab.statistics.decision import ALPHA

SETS = 150
CHANCE = 1e-5
"""How rarely a right rate may be called wrong."""


def check(rates: list[Rate], sets: int) -> None:
    assert len({rate.what for rate in rates}) == len(rates)
    for rate in rates:
        low, high = scipy.stats.binom.ppf([CHANCE, 1 - CHANCE], sets, min(rate.allowed, 1.0)) / sets
        assert rate.measured <= high, rate.line
        assert rate.bound or rate.measured >= low, rate.line


def test_every_form_errs_as_often_as_it_may() -> None:
    check(single_claims(SETS, np.random.default_rng(1)), SETS)


def test_holms_families_err_as_often_as_one_claim_may() -> None:
    sets = 60
    rates = families(sets, np.random.default_rng(2))
    check([rate for rate in rates if "wrong verdicts" not in rate.what], sets)
    for rate in rates:
        if "wrong verdicts" in rate.what:  # a sum of up to ten that may come together
            assert rate.measured == pytest.approx(rate.allowed, abs=5 * 10 * ALPHA / sets**0.5)
    without = [rate.measured for rate in rates if "uncorrected: any" in rate.what]
    assert min(without) > 2 * ALPHA


def test_as_many_seeds_as_are_said_to_decide_a_claim_do() -> None:
    check(power(SETS, np.random.default_rng(3)), SETS)


@pytest.mark.parametrize("apart", [0.0, 0.3])
def test_the_power_of_equivalence_is_that_of_theory(apart: float) -> None:
    """Given the sample's deviation s, the mean must be within the margin less t · s / √n."""
    n, margin, deviation = 6, 2.0, np.sqrt(2)
    critical = scipy.stats.t.ppf(1 - ALPHA, n - 1)

    def given(ratio: float) -> float:
        """The density of s / σ times the chance that the mean is inside."""
        room = margin - critical * ratio * deviation / np.sqrt(n)
        if room <= 0:
            return 0.0
        error = deviation / np.sqrt(n)
        inside = np.diff(scipy.stats.norm.cdf([-room, room], apart, error))[0]
        density = scipy.stats.chi.pdf(ratio * np.sqrt(n - 1), n - 1) * np.sqrt(n - 1)
        return float(inside * density)

    expected, _ = scipy.integrate.quad(given, 0, 10)
    found = counts(f"x: m0 ~ m1 within {margin}", (apart, 0.0), n, SETS, np.random.default_rng(4))
    assert 0.5 < expected < 0.99
    low, high = scipy.stats.binom.ppf([CHANCE, 1 - CHANCE], SETS, expected) / SETS
    assert low <= found["holds"] <= high
