"""Means, their standard errors and their intervals."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class MeanEstimate:
    """The mean of n values and its two-sided 95 % interval; None where there is none."""

    n: int
    mean: float | None
    ci95: tuple[float, float] | None

    @property
    def half_width(self) -> float | None:
        """Half of the interval's width, the number after ±."""
        return None if self.ci95 is None else (self.ci95[1] - self.ci95[0]) / 2

    @property
    def standard_error(self) -> float | None:
        """The standard error of the mean, s / √n; None without an interval."""
        return None if self.half_width is None else self.half_width / t_quantile(self.n)


def estimate_mean(values: Sequence[float]) -> MeanEstimate:
    """Estimate the mean of `values` and its Student's t interval. Equal values have an interval of
    width 0. Sums are exact, so the order never matters. Values that are not finite have no mean."""
    n = len(values)
    if n == 0 or not all(math.isfinite(value) for value in values):
        return MeanEstimate(n, None, None)
    mean = statistics.mean(map(float, values))
    if n == 1:
        return MeanEstimate(n, mean, None)
    try:
        deviation = statistics.stdev(values)
    except OverflowError:  # the values spread over the whole range of float64
        return MeanEstimate(n, mean, None)
    half = t_quantile(n) * deviation / math.sqrt(n)
    low, high = mean - half, mean + half
    finite = math.isfinite(low) and math.isfinite(high)
    return MeanEstimate(n, mean, (low, high) if finite else None)


@functools.cache
def t_quantile(n: int, level: float = 0.95) -> float:
    """The |t| of n values that is exceeded with probability 1 − `level`."""
    # scipy.special loads ten times faster than scipy.stats.
    from scipy.special import stdtrit

    return float(stdtrit(n - 1, 0.5 + level / 2))


def welch_difference(first: Sequence[float], second: Sequence[float]) -> MeanEstimate:
    """Estimate the difference of the means of independent samples of two or more (Welch 1947). `n`
    is the smaller number of values. Samples without any spread have no interval."""
    n = min(len(first), len(second))
    if not all(map(math.isfinite, (*first, *second))):
        return MeanEstimate(n, None, None)
    mean = statistics.fmean(second) - statistics.fmean(first)
    shares = [statistics.variance(sample) / len(sample) for sample in (first, second)]
    if sum(shares) == 0:
        return MeanEstimate(n, mean, None)
    parts = zip(shares, (first, second), strict=True)
    freedom = sum(shares) ** 2 / sum(share**2 / (len(of) - 1) for share, of in parts)
    from scipy.special import stdtrit

    half = float(stdtrit(freedom, 0.975)) * math.sqrt(sum(shares))
    return MeanEstimate(n, mean, (mean - half, mean + half))
