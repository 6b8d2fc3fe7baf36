"""The decision of a claim: paired one-sided tests over seeds to a verdict.

All models are trained under the same seeds. A seed fixes the data order and the initial weights, so
the difference of two models under one seed is free of the seed's effect on both. The tests treat
these differences as independent draws from one distribution.

A claim says of one or several differences on which side of a value their means are: its bounds.

- It holds if every bound is significant on its own. The p-value is then the largest one
  (intersection–union test; Berger 1982), whose error rate is at most that of one bound.
- It fails if one bound is significant on the other side at α divided by their number (Bonferroni).

For a claim that both verdicts contradict if the mean is the value itself, as a > b does for equal
models, each side is tested at α / 2, so that α is the rate of both errors together.

How many seeds would decide a claim follows from the power of the t-test by the non-central t
distribution (Cohen 1988, chapter 2).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from fope_lab.statistics.intervals import MeanEstimate, estimate_mean, t_quantile

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
        if level == 0.95 or estimate.mean is None or estimate.standard_error is None:
            return estimate.ci95
        half = t_quantile(estimate.n, level) * estimate.standard_error
        return estimate.mean - half, estimate.mean + half

    def words(self, n: int) -> str:
        return f"t over {f'{n} seeds' if n > 1 else 'seeds (at least 2 are needed)'}"


STUDENT_T = StudentT()


Decision = Literal["holds", "fails", "undecided"]
POWER = 0.8
MOST = 1_000
FEWEST_KNOWN = 3
"""From how many seeds on their spread says something of how many are needed."""


@dataclass(frozen=True)
class Bound:
    """The statement that the mean of `differences` is on one `side` of `null`."""

    differences: Sequence[float]  # in the order of the seeds
    null: float
    side: Side


@dataclass(frozen=True)
class Outcome:
    """The p-values of the two verdicts, against the hypothesis that each would be wrong."""

    holds: float
    fails: float

    @property
    def p(self) -> float:
        """The p-value of the verdict that is nearer."""
        return min(self.holds, self.fails)

    def verdict(self, p: float) -> Decision:
        """The verdict if its p-value is `p`: the claim's own, or one adjusted for many claims."""
        if p >= ALPHA:
            return "undecided"
        return "holds" if self.holds <= self.fails else "fails"


def is_true(bound: Bound, *, closed: bool) -> bool:
    """Whether numbers without seeds are where the bound says; `closed` includes the null itself."""
    (value,) = bound.differences
    if math.isclose(value, bound.null, rel_tol=ROUNDING):
        return closed
    return value > bound.null if bound.side == "greater" else value < bound.null


def decide(bounds: Sequence[Bound], test: SeedTest, *, two_sided: bool) -> Outcome | None:
    """Test whether all bounds are true; None if the differences of one do not suffice. With
    `two_sided` each side has α / 2, without it α."""
    claimed = [test.p(bound.differences, bound.null, bound.side) for bound in bounds]
    against = [test.p(bound.differences, bound.null, OTHER_SIDE[bound.side]) for bound in bounds]
    ps = [p for p in claimed if p is not None]
    others = [p for p in against if p is not None]
    if not bounds or len(ps) < len(bounds) or len(others) < len(bounds):
        return None
    sides = 2 if two_sided else 1
    return Outcome(min(1.0, sides * max(ps)), min(1.0, sides * len(bounds) * min(others)))


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Return the p-values of a family, adjusted so that α is its family-wise error rate.

    The smallest of m p-values is multiplied by m, the next by m − 1 and so on, and none is below
    the one before it (Holm 1979, "A simple sequentially rejective multiple test procedure"). What
    was not tested, None, counts as the largest p would.
    """
    order = sorted((p, i) for i, p in enumerate(ps) if p is not None)
    adjusted: list[float | None] = [None] * len(ps)
    least = 0.0
    for rank, (p, i) in enumerate(order):
        least = max(least, min(1.0, (len(ps) - rank) * p))
        adjusted[i] = least
    return adjusted


def chance_rate(contrasts: int, *, two_sided: bool) -> float:
    """Return the rate at which a claim is decided by chance if no difference existed.

    One pair is decided at α. A chain of k pairs fails at α / 2 at most, as each pair has α / 2k on
    that side, and holds at (α / 2)ᵏ at most, since neighbouring differences have a number in common
    with opposite signs. A claim with a margin has one wrong verdict, which comes out at α at most.
    """
    return ALPHA / 2 + (ALPHA / 2) ** contrasts if two_sided else ALPHA


def t_power(n: int, effect: float, alpha: float) -> float:
    """Return the power of the one-sided t-test of n differences at level `alpha`. `effect` is the
    distance of the mean from the null in standard deviations, positive on the tested side."""
    if math.isinf(effect):  # differences without spread have the sign test
        return float(effect > 0 and 0.5**n <= alpha)
    # scipy.special loads ten times faster than scipy.stats.
    from scipy.special import nctdtr, stdtrit

    power = 1 - float(nctdtr(n - 1, effect * math.sqrt(n), stdtrit(n - 1, 1 - alpha)))
    return power if math.isfinite(power) else float(effect > 0)  # scipy gives up far out


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

    if power(MOST) < POWER:
        return None
    return bisect_left(range(MOST), POWER, lo=2, key=power)


def _effect(bound: Bound) -> float:
    """The distance of the mean from the null in standard deviations, on the claimed side."""
    estimate = estimate_mean([difference - bound.null for difference in bound.differences])
    if estimate.mean is None or estimate.standard_error is None:
        return 0.0
    deviation = estimate.standard_error * math.sqrt(estimate.n)
    toward = estimate.mean if bound.side == "greater" else -estimate.mean
    return toward / deviation if deviation else math.copysign(math.inf, toward) if toward else 0.0
