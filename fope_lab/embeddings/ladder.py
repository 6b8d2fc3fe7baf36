"""The frequencies of rotary embeddings as a ladder: one frequency a pair, from fast to slow.

Frequencies are Python floats (float64) in radians per token, so that a plan computes them without
torch. Modules hold them as float64 tensors.
"""

from __future__ import annotations

from dataclasses import dataclass


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
