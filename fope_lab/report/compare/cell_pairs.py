"""The difference of two cells, with its interval: paired over the seeds that both have.

A seed fixes the data order and the initial weights, so pairs remove its effect
(statistics/t_test.py). If fewer than two seeds are in both, and each cell has several, the interval
is Welch's, which treats the seeds of both as independent.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Literal

from fope_lab.report.results.aggregate import Cell
from fope_lab.statistics.intervals import MeanEstimate, estimate_mean, welch_difference
from fope_lab.statistics.t_test import ALPHA, STUDENT_T

Change = Literal["better", "worse", "other"]


@dataclass(frozen=True)
class Difference:
    """The second cell minus the first.

    `paired` says whether it is over the seeds that both have; `estimate.n` is their number, or else
    the smaller number of seeds. `change` is None if the interval has 0 in it, if there is none, and
    for a few equal differences, which chance alone gives often (statistics/t_test.py).
    """

    estimate: MeanEstimate
    paired: bool
    change: Change | None


def difference_of(first: Cell, second: Cell) -> Difference | None:
    """Return the difference of two cells of one metric; None if one of them has no finite mean."""
    values = [{v.seed: v.value for v in cell.values} for cell in (first, second)]
    common = [seed for seed in values[0] if seed in values[1]]
    samples = [list(of.values()) for of in values]
    decided = True
    if len(common) < 2 and all(len(sample) > 1 for sample in samples):
        estimate, paired = welch_difference(*samples), False
    elif common:
        differences = [values[1][seed] - values[0][seed] for seed in common]
        estimate, paired = estimate_mean(differences), True
        p = STUDENT_T.p(differences, 0.0, "greater")
        decided = p is not None and 2 * min(p, 1 - p) < ALPHA
    elif all(samples):
        estimate = _without_interval(statistics.fmean(samples[1]) - statistics.fmean(samples[0]))
        paired = False
    else:
        return None
    if estimate.mean is None:
        return None
    change = _change(estimate, first.metric.better) if decided else None
    return Difference(estimate, paired, change)


def _change(estimate: MeanEstimate, better: str | None) -> Change | None:
    """What a difference means, if its interval is above or below 0."""
    if estimate.ci95 is None or estimate.ci95[0] <= 0 <= estimate.ci95[1]:
        return None
    if better is None:
        return "other"
    return "better" if (estimate.ci95[0] > 0) == (better == "higher") else "worse"


def _without_interval(difference: float) -> MeanEstimate:
    return MeanEstimate(1, difference if math.isfinite(difference) else None, None)
