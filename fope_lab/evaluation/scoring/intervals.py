"""Standard errors and intervals of means over a finite number of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def wilson_interval(correct: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a binomial share (Wilson 1927)."""
    from statistics import NormalDist  # here, because plans import this module and need no z

    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = correct / trials
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    spread = math.sqrt(share * (1 - share) / trials + (z / (2 * trials)) ** 2)
    half = z / (1 + z * z / trials) * spread
    # Around the share, which rounding may leave just outside where it is 0 or 1.
    return min(share, max(0.0, middle - half)), max(share, min(1.0, middle + half))


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean and its standard error, s/√n with s² of n − 1; None for a single value."""
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return mean, None
    deviations = math.fsum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(deviations / (count - 1) / count)


def error_of_mean(values: NDArray[np.float64]) -> float | None:
    """The standard error of the mean of `values` (n,), s/√n; None for fewer than two."""
    if len(values) < 2:
        return None
    return float(values.std(ddof=1)) / math.sqrt(len(values))
