"""The test of claims in a sweep that adds seeds until its claims are decided.

After each seed from the first look on, it asks the same question as Student's paired t-test. Its
p-values are those of repeated significance tests (Jennison & Turnbull, "Repeated confidence
intervals for group sequential trials", Controlled Clinical Trials 1984): p at a look is the
smallest error rate of all looks together whose boundary (error_spending.py) the t statistic
crosses there. For equal models, the probability that p falls below α at any look is at most α,
however many seeds are added and whatever they are added for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from fope_lab.report.compare.error_spending import boundary
from fope_lab.report.compare.seed_test import STUDENT_T
from fope_lab.report.results.aggregate import MeanEstimate
from fope_lab.sweep.claims.contrast import Side

LEVELS = (
    *(1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.0125, 0.05 / 3, 0.025, 0.1 / 3),
    *(0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9),
)
"""Two-sided error rates whose boundaries are exact. Between them p is interpolated; below the
smallest, p is the smallest."""


@dataclass(frozen=True)
class SequentialT:
    """Student's t-test, repeated after each seed from `first` seeds on. It is a SeedTest."""

    first: int
    name = "sequential paired t-test"

    def p(self, differences: Sequence[float], null: float, side: Side) -> float | None:
        """The smallest p-value of all looks so far: see `SeedTest.p`.

        None before the first look, and for differences that Student's t has no p for.
        """
        looks = range(self.first, len(differences) + 1)
        found = [_look(self.first, tuple(differences[:n]), null, side) for n in looks]
        return None if not found or found[-1] is None else min(p for p in found if p is not None)

    def interval(self, estimate: MeanEstimate, level: float) -> tuple[float, float] | None:
        """The repeated confidence interval: at all looks together it covers the mean at `level`."""
        mean, error = estimate.mean, estimate.standard_error
        if mean is None or error is None or estimate.n < self.first:
            return None
        half = boundary(self.first, 1 - level).critical(estimate.n) * error
        return mean - half, mean + half

    def words(self, n: int) -> str:
        """Name the test with its number of looks and of seeds."""
        looks = max(0, n - self.first + 1)
        counted = f"{looks} look{'' if looks == 1 else 's'}"
        if not looks:
            return f"sequential t, which begins at {self.first} seeds"
        return f"sequential t over {n} seeds, {counted}"


@lru_cache(maxsize=10_000)
def _look(first: int, differences: tuple[float, ...], null: float, side: Side) -> float | None:
    """The one-sided p-value of the look at all of these differences."""
    fixed = STUDENT_T.p(differences, null, side)
    if fixed is None or fixed in (0.0, 0.5, 1.0):  # beyond doubt, or without a difference
        return fixed
    from scipy.special import stdtrit

    n = len(differences)
    two_sided = repeated_p(first, n, -float(stdtrit(n - 1, min(fixed, 1 - fixed))))
    return two_sided / 2 if fixed < 0.5 else 1 - two_sided / 2


def repeated_p(first: int, n: int, t: float) -> float:
    """The two-sided p-value of |t| = `t` at the look at `n` seeds, if looks began at `first`."""
    low, high = 0, len(LEVELS)  # the boundary of a larger level is nearer
    while low < high:
        middle = (low + high) // 2
        if t >= boundary(first, LEVELS[middle]).critical(n):
            high = middle
        else:
            low = middle + 1
    if low == len(LEVELS):
        return 1.0
    if low == 0:
        return LEVELS[0]
    levels = LEVELS[low - 1], LEVELS[low]
    far, near = (math.log(boundary(first, level).critical(n)) for level in levels)
    toward = (math.log(t) - near) / (far - near)
    return math.exp(math.log(levels[1]) * (1 - toward) + math.log(levels[0]) * toward)
