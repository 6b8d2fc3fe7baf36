"""Frequency ladders: RoPE's, and cutting it at a floor.

A ladder holds one frequency a pair, in radians per token, from fast to slow. Frequencies are Python
floats (float64), so a plan can resolve them without torch; modules store them as float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from fope_lab.embeddings.base import Bounds, FrequencyTransform, Means

Factor = Annotated[
    float, Bounds(ge=1, le=1e6), Means("how many times longer the context is than the original, s")
]
OriginalLength = Annotated[
    int, Bounds(ge=1), Means("the original length in tokens, if it is not the training length")
]


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """Frequencies, and what a transform may need to know about them.

    `frequencies` are in radians per token; those that do not rotate are 0 and come last. `places`
    says where in RoPE's ladder of `head_dim` each is: pair i at i, and others, where a ladder has
    finer steps, in between. `train_length` is the original training length in tokens, `length`
    that of the sequence at hand; `attention_factor` scales rotated queries and keys.
    """

    frequencies: tuple[float, ...]
    places: tuple[float, ...]
    head_dim: int
    base: float
    train_length: int
    length: int
    attention_factor: float = 1.0

    def __post_init__(self) -> None:
        if any(self.frequencies[self.rotating :]):
            raise ValueError(f"a pair rotates after one that does not: {self.frequencies}")

    @property
    def rotating(self) -> int:
        """How many pairs rotate."""
        still = (pair for pair, omega in enumerate(self.frequencies) if omega == 0)
        return next(still, len(self.frequencies))


def rope_ladder(
    head_dim: int,
    *,
    base: float,
    train_length: int,
    length: int | None = None,
    steps: int | None = None,
) -> Ladder:
    """RoPE's frequencies ω_i = base^(−2i/head_dim) (RoFormer, arXiv 2104.09864, §3.2.2).

    `length` is that of the sequence at hand, the training length by default. `steps` frequencies,
    rather than head_dim/2, divide the same range more finely or more coarsely.
    """
    steps = head_dim // 2 if steps is None else steps
    places = tuple(step * head_dim / (2 * steps) for step in range(steps))
    return Ladder(
        frequencies=tuple(base ** -(2 * place / head_dim) for place in places),
        places=places,
        head_dim=head_dim,
        base=base,
        train_length=train_length,
        length=length or train_length,
    )


@dataclass(frozen=True, kw_only=True)
class ClipFloor(
    FrequencyTransform, name="clip_floor", source="Hua et al., arXiv 2412.17739, Eq. 13"
):
    """Frequencies under 2π/N, which finish no cycle in N tokens, become 0.

    N is `original_length`, or the training length. A frequency of exactly 2π/N is kept.
    """

    elementwise: ClassVar[bool] = True

    original_length: OriginalLength | None = None

    def apply(self, ladder: Ladder) -> Ladder:
        """The ladder with its slow end set to 0."""
        floor = 2 * math.pi / (self.original_length or ladder.train_length)
        return replace(
            ladder,
            frequencies=tuple(0.0 if omega < floor else omega for omega in ladder.frequencies),
        )
