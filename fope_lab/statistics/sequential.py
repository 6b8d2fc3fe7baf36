"""A paired t-test repeated after each seed, with one error rate for all looks.

p at a look is the smallest error rate of all looks together whose boundary the t statistic crosses
there (Jennison & Turnbull, "Repeated confidence intervals for group sequential trials", Controlled
Clinical Trials 1984). For equal models, p falls below α at any look with probability α at most,
however many seeds are added and whatever for.

The error is spent as the seeds come (Lan & DeMets, "Discrete sequential boundaries for clinical
trials", Biometrika 1983): for equal models, a look at up to n seeds crosses the boundary with
probability level · n² / (n² + 100), a fifth of the level by 5 seeds, half by 10 and four fifths by
20. Unlike the usual spending functions, this depends on no last look, so that seeds may be added to
an experiment that ended undecided.

The critical values are exact for independent normal differences. The t statistics at successive
looks are a Markov chain whose law does not depend on the variance (Jennison & Turnbull, "Exact
calculations for sequential t, χ² and F tests", Biometrika 1991). Numerical integration follows the
chain through the angle φ, tan φ = t / √(n − 1). Without an effect, the differences point in a
direction that is uniform on the sphere in n dimensions. Then φ has the density
cos^(n−2) φ / B(1/2, (n − 1)/2), and given φ, the last difference's share of the direction has the
same density in n − 1 dimensions.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from fope_lab.statistics.decision import STUDENT_T, Side
from fope_lab.statistics.intervals import MeanEstimate

Array = NDArray[np.float64]

HALF_SPENT = 10
"""The number of seeds by which half of the level is spent."""
NODES, WEIGHTS = legendre.leggauss(24)
"""Gauss–Legendre quadrature on [−1, 1]: critical values to four digits, and mostly to seven."""
TO_COEFFICIENTS = np.linalg.inv(legendre.legvander(NODES, len(NODES) - 1))
"""Turns values at NODES into the coefficients of the polynomial through them."""
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
        """Return the smallest p-value of all looks so far: see `SeedTest.p`. None before the first
        look, and for differences that Student's t has no p for."""
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
        if n < self.first:
            return f"sequential t, which begins at {self.first} seeds"
        looks = n - self.first + 1
        return f"sequential t over {n} seeds, {looks} look{'' if looks == 1 else 's'}"


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
    # The boundary of a larger level is nearer.
    near = bisect_left(LEVELS, True, key=lambda level: t >= boundary(first, level).critical(n))
    if near == len(LEVELS):
        return 1.0
    if near == 0:
        return LEVELS[0]
    levels = LEVELS[near - 1 : near + 1]
    logs = [math.log(boundary(first, level).critical(n)) for level in levels]
    toward = (math.log(t) - logs[1]) / (logs[0] - logs[1])
    return math.exp(math.log(levels[1]) * (1 - toward) + math.log(levels[0]) * toward)


def share_spent(n: int) -> float:
    """Return the share of the level that the looks at up to `n` seeds may use."""
    return n**2 / (n**2 + HALF_SPENT**2)


@cache
def boundary(first: int, level: float) -> Boundary:
    """The boundary of looks at `first`, `first` + 1, … seeds with a two-sided error of `level`."""
    return Boundary(first, level)


class Boundary:
    """The critical values of |t| at `first` ≥ 2, `first` + 1, … seeds, computed as asked for.
    `share` is the share of the level that is spent by n seeds."""

    def __init__(
        self, first: int, level: float, share: Callable[[int], float] = share_spent
    ) -> None:
        self._first, self._level, self._share = first, level, share
        self._looks: list[_Look] = []

    def critical(self, n: int) -> float:
        """Return the value from which on |t| of `n` ≥ `first` seeds crosses the boundary."""
        while len(self._looks) <= n - self._first:
            self._looks.append(self._next_look())
        return math.tan(self._looks[n - self._first].angle) * math.sqrt(n - 1)

    def _next_look(self) -> _Look:
        from scipy.optimize import brentq

        before = self._looks[-1] if self._looks else None
        n = self._first if before is None else before.n + 1
        spent = 0.0 if before is None else self._share(before.n)
        rate = self._level * (self._share(n) - spent)
        angle = brentq(
            lambda at: _crossing(at, n, before) - rate, 1e-9, math.pi / 2 - 1e-12, xtol=1e-12
        )
        return _Look(n, angle, TO_COEFFICIENTS @ _not_crossed(angle * NODES, n, before))


class _Look(NamedTuple):
    """A look at `n` seeds: the boundary at ± `angle`, and the probability of no earlier crossing,
    as a function of φ / angle in a Legendre series."""

    n: int
    angle: float
    series: Array


def _density(phi: Array, n: int) -> Array:
    """The density of the angle of `n` differences without an effect."""
    constant = math.exp(math.lgamma(n / 2) - math.lgamma((n - 1) / 2)) / math.sqrt(math.pi)
    density: Array = constant * np.cos(phi) ** (n - 2)
    return density


def _crossing(angle: float, n: int, before: _Look | None) -> float:
    """The probability of crossing at ± `angle` with `n` seeds, and at no look before."""
    top = math.pi / 2
    if before is not None:  # from a larger angle, every path has crossed before
        top = math.asin(min(1.0, math.sqrt((1 + before.n * math.sin(before.angle) ** 2) / n)))
    if angle >= top:
        return 0.0
    root = (NODES + 1) / 2  # squared, since the integrand rises from 0 as a root does
    phi = top - (top - angle) * root**2
    values = _density(phi, n) * _not_crossed(phi, n, before)
    return 2 * (top - angle) * float(np.sum(WEIGHTS * root * values))


def _not_crossed(phi: Array, n: int, before: _Look | None) -> Array:
    """The probability that no look before `n` seeds crossed, given the angle at `n`.

    With R = √n · sin φ and the last difference's share y of the direction, the look before had
    √m · sin φ' = (R − y) / √(1 − y²), where m = n − 1. It stayed inside ± r for y between the
    roots of (1 + r²)y² − 2Ry + R² − r².
    """
    if before is None:
        return np.ones_like(phi)
    m = before.n
    total, inside = math.sqrt(n) * np.sin(phi), m * math.sin(before.angle) ** 2
    half = np.sqrt(inside * np.maximum(1 + inside - total**2, 0))
    middle, scale = np.sin(phi) / math.sqrt(n), np.cos(phi) * math.sqrt(m / n)
    roots = [(total - half) / (1 + inside), (total + half) / (1 + inside)]
    low, high = (np.arcsin(np.clip((root - middle) / scale, -1, 1)) for root in roots)
    width = (high - low)[:, None] / 2
    theta = (low + high)[:, None] / 2 + width * NODES
    y = middle[:, None] + scale[:, None] * np.sin(theta)
    sine = (total[:, None] - y) / np.sqrt((1 - y**2) * m)
    there = np.clip(np.arcsin(np.clip(sine, -1, 1)) / before.angle, -1, 1)
    stayed = legendre.legval(there, before.series)
    kept: Array = np.sum(width * WEIGHTS * _density(theta, m) * stayed, axis=1)
    return kept
