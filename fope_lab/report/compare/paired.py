"""Student's paired t-test over seeds, and the intersection–union test of several pairs.

All models are trained under the same seeds. A seed fixes the data order and the initial weights, so
the difference of two models under one seed is free of the seed's effect on both. The test treats
these differences as independent draws from one normal distribution and tests whether its mean is 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fope_lab.report.results.aggregate import MeanEstimate, estimate_mean

ALPHA = 0.05

Decision = Literal["holds", "fails", "undecided"]


@dataclass(frozen=True)
class PairedTest:
    """A test of whether the mean difference is 0.

    `p` is two-sided; it is None if the differences do not suffice for a test.
    """

    differences: MeanEstimate
    p: float | None


def paired_t(differences: Sequence[float]) -> PairedTest:
    """Test whether the mean of `differences` is 0.

    Differences that are all equal leave no doubt: p is 0, or 1 if all are 0. There is no test for a
    single difference, for one that is not finite, or for two equal ones: two seeds give the same
    difference of accuracies by chance about once in ten times.
    """
    estimate = estimate_mean(differences)
    if estimate.mean is None or estimate.ci95 is None:
        return PairedTest(estimate, None)
    mean, n = estimate.mean, estimate.n
    if len(set(differences)) == 1:
        certain = 1.0 if mean == 0 else 0.0
        return PairedTest(estimate, None if n == 2 and mean else certain)
    spread = math.hypot(*(difference - mean for difference in differences))  # √(n − 1) · s
    # scipy.special loads ten times faster than scipy.stats.
    from scipy.special import stdtr

    t = mean / spread * math.sqrt(n * (n - 1))
    return PairedTest(estimate, 2 * float(stdtr(n - 1, -abs(t))))


def decide(tests: Sequence[PairedTest], sign: int = 1) -> tuple[Decision, float | None]:
    """Decide whether every difference is positive, and return the p-value.

    `tests` are those of the pairs of a chain; with `sign` −1 the differences must be negative. The
    claim holds if each pair is significant on its own. The chain's p is then the largest p
    (intersection–union test; Berger 1982), whose error rate is at most that of one pair. The claim
    fails if a pair is significant in the other direction at α divided by the number of pairs
    (Bonferroni).
    """
    ps = [test.p for test in tests if test.p is not None]
    if not tests or len(ps) < len(tests):
        return "undecided", None
    as_claimed = [sign * (test.differences.mean or 0.0) > 0 for test in tests]
    if all(as_claimed) and max(ps) < ALPHA:
        return "holds", max(ps)
    against = [len(ps) * p for p, claimed in zip(ps, as_claimed, strict=True) if not claimed]
    if against and min(against) < ALPHA:
        return "fails", min(against)
    return "undecided", max(ps)
