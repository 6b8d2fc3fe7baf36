"""Student's paired t over seeds, and the intersection–union of several of them.

Each model is trained under the same seeds, which fix what it reads and how it begins, so that seed
by seed the difference of two models is free of what the seed does to both. The test takes these
differences for independent draws of one normal distribution, and asks whether its mean is 0.
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
    """Whether the mean of some differences is 0: `p` is two-sided, None if they can't tell."""

    differences: MeanEstimate
    p: float | None


def paired_t(differences: Sequence[float]) -> PairedTest:
    """Test whether the mean is 0. Without any spread it is certain: p is 0, or 1 where all are 0.

    One difference, or one that is not finite, tells nothing; nor do two equal ones: accuracies
    that are counted out of a few trials are equal by chance about once in ten times.
    """
    estimate = estimate_mean(differences)
    if estimate.mean is None or estimate.ci95 is None:
        return PairedTest(estimate, None)
    mean, n = estimate.mean, estimate.n
    if len(set(differences)) == 1:
        certain = 1.0 if mean == 0 else 0.0
        return PairedTest(estimate, None if n == 2 and mean else certain)
    spread = math.hypot(*(one - mean for one in differences))  # √(n − 1) · s
    # scipy.special loads in a tenth of the time of scipy.stats
    from scipy.special import stdtr

    t = mean / spread * math.sqrt(n * (n - 1))
    return PairedTest(estimate, 2 * float(stdtr(n - 1, -abs(t))))


def decide(tests: Sequence[PairedTest], sign: int = 1) -> tuple[Decision, float | None]:
    """Whether every difference is above 0, or with `sign` −1 below it, from the tests of the pairs
    of a chain; and the p-value.

    It holds if each pair is significant on its own: the chain's p is the largest of them
    (intersection–union; Berger 1982), which errs no more often than one pair's. It fails if one
    pair is significant the other way, at α over the number of pairs (Bonferroni).
    """
    ps = [test.p for test in tests if test.p is not None]
    if not tests or len(ps) < len(tests):
        return "undecided", None
    right = [sign * (test.differences.mean or 0.0) > 0 for test in tests]
    if all(right) and max(ps) < ALPHA:
        return "holds", max(ps)
    against = [len(ps) * p for p, claimed in zip(ps, right, strict=True) if not claimed]
    if against and min(against) < ALPHA:
        return "fails", min(against)
    return "undecided", max(ps)
