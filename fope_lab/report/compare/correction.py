"""Many verdicts in one file: how many come out by chance, and Holm's correction for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fope_lab.report.compare.seed_test import ALPHA

Correction = Literal["none", "holm"]


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
    """The rate at which a claim is decided by chance if no difference existed.

    One pair is decided at α. A chain of k pairs fails at α / 2 at most, since each pair has α / 2k
    on that side, and holds at (α / 2)ᵏ at most: neighbouring differences have a number in common
    with opposite signs, so that they are less often large together than independent ones. A claim
    with a margin has one wrong verdict, which comes out at α at most.
    """
    return ALPHA / 2 + (ALPHA / 2) ** contrasts if two_sided else ALPHA
