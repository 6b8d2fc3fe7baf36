"""The errors of verdicts, by simulation: benchmarks/claims.py with 150 sets instead of 20,000."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from benchmarks.claims import Rate, families, power, single_claims
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
