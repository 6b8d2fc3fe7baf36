"""The decision of a claim: one-sided tests over seeds to a verdict.

A claim says of one or several differences on which side of a value their means are: its bounds.

- It holds if every bound is significant on its own. The p-value is then the largest one
  (intersection–union test; Berger 1982), whose error rate is at most that of one bound.
- It fails if one bound is significant on the other side at α divided by their number (Bonferroni).

For a claim that both verdicts contradict if the mean is the value itself, as a > b does for equal
models, each side is tested at α / 2, so that α is the rate of both errors together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fope_lab.statistics.t_test import ALPHA, OTHER_SIDE, ROUNDING, SeedTest, Side

Decision = Literal["holds", "fails", "undecided"]


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
    """Test whether all bounds are true; None if the differences of one do not suffice.

    With `two_sided` each side has α / 2, without it α.
    """
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
    the one before it (Holm 1979, "A simple sequentially rejective multiple test procedure"). None
    is a member of the family that was not tested: it counts, as the largest p would.
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

    One pair is decided at α. A chain of k pairs fails at α / 2 at most, since each pair has α / 2k
    on that side, and holds at (α / 2)ᵏ at most: neighbouring differences have a number in common
    with opposite signs, so that they are less often large together than independent ones. A claim
    with a margin has one wrong verdict, which comes out at α at most.
    """
    return ALPHA / 2 + (ALPHA / 2) ** contrasts if two_sided else ALPHA
