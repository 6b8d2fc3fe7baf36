"""Means, their standard errors and their intervals."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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


def wilson_interval(correct: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return Wilson's score interval of a binomial share (Wilson 1927)."""
    z = statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    share = correct / trials
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    spread = math.sqrt(share * (1 - share) / trials + (z / (2 * trials)) ** 2)
    half = z / (1 + z * z / trials) * spread
    # Around the share, which rounding may leave just outside where it is 0 or 1.
    return min(share, max(0.0, middle - half)), max(share, min(1.0, middle + half))


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean and its standard error, s / √n; None for a single value."""
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return mean, None
    deviations = math.fsum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(deviations / (count - 1) / count)


def error_of_mean(values: NDArray[np.float64]) -> float | None:
    """Return the standard error of the mean of `values` (n,), s / √n; None for fewer than two."""
    if len(values) < 2:
        return None
    return float(values.std(ddof=1)) / math.sqrt(len(values))
