"""Frequency ladders: RoPE's, and cutting it at a floor.

A ladder holds one frequency a pair, in radians per token, from fast to slow. Frequencies are Python
floats (float64), so a plan can resolve them without torch; modules store them as float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated

from fope_lab.embeddings.base import Bounds, FrequencyTransform


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """Frequencies of the pairs, and what a transform may need to know about them.

    `frequencies` has head_dim/2 entries in radians per token; pairs that do not rotate have 0 and
    come last. `train_length` is the original training length in tokens; `attention_factor` scales
    rotated queries and keys.
    """

    frequencies: tuple[float, ...]
    base: float
    train_length: int
    attention_factor: float = 1.0

    def __post_init__(self) -> None:
        if any(self.frequencies[self.rotating :]):
            raise ValueError(f"a pair rotates after one that does not: {self.frequencies}")

    @property
    def head_dim(self) -> int:
        """Dimensions of a head: two a pair."""
        return 2 * len(self.frequencies)

    @property
    def rotating(self) -> int:
        """How many pairs rotate."""
        still = (pair for pair, omega in enumerate(self.frequencies) if omega == 0)
        return next(still, len(self.frequencies))


def rope_ladder(head_dim: int, *, base: float, train_length: int) -> Ladder:
    """RoPE's frequencies ω_i = base^(−2i/head_dim) (RoFormer, arXiv 2104.09864, §3.2.2)."""
    exponents = (2 * pair / head_dim for pair in range(head_dim // 2))
    return Ladder(
        frequencies=tuple(base**-exponent for exponent in exponents),
        base=base,
        train_length=train_length,
    )


@dataclass(frozen=True, kw_only=True)
class ClipFloor(FrequencyTransform, name="clip_floor"):
    """Frequencies under 2π/N, which finish no cycle in N tokens, become 0 (FoPE, Eq. 13).

    N is `original_length`, or the training length. A frequency of exactly 2π/N is kept.
    """

    original_length: Annotated[int, Bounds(ge=1)] | None = None

    def apply(self, ladder: Ladder) -> Ladder:
        """The ladder with its slow end set to 0."""
        floor = 2 * math.pi / (self.original_length or ladder.train_length)
        return replace(
            ladder,
            frequencies=tuple(0.0 if omega < floor else omega for omega in ladder.frequencies),
        )
