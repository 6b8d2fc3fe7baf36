"""The paired test over seeds that decides claims, and the interface that other tests share.

All models are trained under the same seeds. A seed fixes the data order and the initial weights, so
the difference of two models under one seed is free of the seed's effect on both. The tests treat
these differences as independent draws from one distribution and ask on which side of a given value
its mean is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from fope_lab.statistics.intervals import MeanEstimate, estimate_mean, t_interval

Side = Literal["greater", "less"]
ALPHA = 0.05
ROUNDING = 1e-9
"""The share of the largest difference within which all are equal, but for rounding."""

OTHER_SIDE: dict[Side, Side] = {"greater": "less", "less": "greater"}


class SeedTest(Protocol):
    """A one-sided test of the mean of differences over seeds."""

    @property
    def name(self) -> str:
        """The name of the test, as in "paired t-test"."""

    def p(self, differences: Sequence[float], null: float, side: Side) -> float | None:
        """Return the p-value of the hypothesis that the mean is not on this side of `null`.

        `differences` are in the order of the seeds. A small p says that the mean is on that side.
        None if the differences do not suffice for a test.
        """

    def interval(self, estimate: MeanEstimate, level: float) -> tuple[float, float] | None:
        """The two-sided interval of the mean that belongs to the test, such as 0.95; if any."""

    def words(self, n: int) -> str:
        """Name the test with its number of seeds, as in "t over 3 seeds"."""


@dataclass(frozen=True)
class StudentT:
    """Student's t-test of a fixed number of differences, which are normal (Student 1908)."""

    name = "paired t-test"

    def p(self, differences: Sequence[float], null: float, side: Side) -> float | None:
        """Return the p-value, as `scipy.stats.ttest_1samp(…, alternative=side)` does.

        Accuracies may be equal by chance, so that differences without spread, but for rounding, are
        no proof: p is that of the sign test, 2⁻ⁿ on the side of the mean and 1 − 2⁻ⁿ on the other,
        or 1/2 if all are `null`. None for a single difference, or one that is not finite.
        """
        shifted = [difference - null for difference in differences]
        estimate = estimate_mean(shifted)
        if estimate.mean is None or estimate.ci95 is None:
            return None
        mean, n = estimate.mean, estimate.n
        toward = mean if side == "greater" else -mean
        close = ROUNDING * max(abs(null), *map(abs, differences))
        if max(shifted) - min(shifted) <= close:
            if abs(mean) <= close:
                return 0.5
            return 0.5**n if toward > 0 else 1 - 0.5**n
        spread = math.hypot(*(value - mean for value in shifted))  # √(n − 1) · s
        # scipy.special loads ten times faster than scipy.stats.
        from scipy.special import stdtr

        return float(stdtr(n - 1, -toward / spread * math.sqrt(n * (n - 1))))

    def interval(self, estimate: MeanEstimate, level: float) -> tuple[float, float] | None:
        """Return the interval of Student's t-distribution."""
        return t_interval(estimate, level)

    def words(self, n: int) -> str:
        """Name the test with its number of seeds."""
        return f"t over {f'{n} seeds' if n > 1 else 'seeds (at least 2 are needed)'}"


STUDENT_T = StudentT()
