"""How many seeds would decide a claim, if the differences are what they seem to be.

Power of the t-test by the non-central t distribution (Cohen 1988, chapter 2): n differences whose
mean is d standard deviations away from the null are significant with the probability that a
non-central t of n − 1 degrees of freedom and non-centrality d√n is above the critical t.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fope_lab.statistics.decision import Bound
from fope_lab.statistics.intervals import estimate_mean

POWER = 0.8
MOST = 1_000
FEWEST_KNOWN = 3
"""From how many seeds on their spread says something of how many are needed."""


def t_power(n: int, effect: float, alpha: float) -> float:
    """Return the power of the one-sided t-test of n differences at level `alpha`.

    `effect` is the distance of the mean from the null in standard deviations, positive on the
    tested side.
    """
    if math.isinf(effect):  # differences without spread have the sign test
        return float(effect > 0 and 0.5**n <= alpha)
    # scipy.special loads ten times faster than scipy.stats.
    from scipy.special import nctdtr, stdtrit

    power = 1 - float(nctdtr(n - 1, effect * math.sqrt(n), stdtrit(n - 1, 1 - alpha)))
    return power if math.isfinite(power) else 1.0


def seeds_needed(bounds: Sequence[Bound], *, two_sided: bool, alpha: float) -> int | None:
    """Return the fewest seeds at which the verdict that seems right comes out with 80 % power.

    None for more than a thousand. If every mean is on the claimed side, the claim is to hold: all
    bounds must be significant at once, and the sum of what each may miss is at most 20 %. If not,
    it is to fail by one of the bounds on the other side.
    """
    effects = [_effect(bound) for bound in bounds]
    level = alpha / (2 if two_sided else 1)
    if all(effect > 0 for effect in effects):

        def power(n: int) -> float:
            return 1 - sum(1 - t_power(n, effect, level) for effect in effects)
    else:

        def power(n: int) -> float:
            return max(t_power(n, -effect, level / len(effects)) for effect in effects)

    return _fewest(power)


def _effect(bound: Bound) -> float:
    """The distance of the mean from the null in standard deviations, towards the claimed side."""
    estimate = estimate_mean([difference - bound.null for difference in bound.differences])
    if estimate.mean is None or estimate.standard_error is None:
        return 0.0
    deviation = estimate.standard_error * math.sqrt(estimate.n)
    toward = estimate.mean if bound.side == "greater" else -estimate.mean
    return toward / deviation if deviation else math.copysign(math.inf, toward) if toward else 0.0


def _fewest(power: Callable[[int], float]) -> int | None:
    """The smallest n with enough power, which grows with n; None if it is above MOST."""
    low, high = 1, MOST
    if power(high) < POWER:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if power(middle) >= POWER:
            high = middle
        else:
            low = middle
    return high
