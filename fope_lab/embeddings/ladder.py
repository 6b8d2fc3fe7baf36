"""The frequencies of rotary embeddings as a ladder: one frequency a pair, from fast to slow.

Frequencies are Python floats (float64) in radians per token, so that a plan computes them without
torch. Modules hold them as float64 tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """Frequencies, and the numbers that transforms compute from.

    `frequencies` are in radians per token; the 0s of pairs that do not rotate come last. `places`
    are the places of the frequencies in RoPE's ladder of `head_dim`: the frequency of pair i is at
    i, and a ladder of finer steps has others in between. `train_length` is the original training
    length in tokens, `length` the length of the current sequence. `attention_factor` multiplies
    rotated queries and keys. Raises ValueError if a 0 comes before another frequency.
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
        """The number of frequencies that are not 0."""
        still = (pair for pair, omega in enumerate(self.frequencies) if omega == 0)
        return next(still, len(self.frequencies))

    def mapped(self, frequency: Callable[[float, float], float]) -> Ladder:
        """This ladder with new frequencies: a function of each place and the frequency there."""
        pairs = zip(self.places, self.frequencies, strict=True)
        return replace(self, frequencies=tuple(frequency(place, omega) for place, omega in pairs))


def rope_ladder(
    head_dim: int,
    *,
    base: float,
    train_length: int,
    length: int | None = None,
    steps: int | None = None,
) -> Ladder:
    """RoPE's frequencies ω_i = base^(−2i/head_dim) (RoFormer, arXiv 2104.09864, §3.2.2).

    `length` is the length of the current sequence in tokens, by default the training length.
    `steps` is the number of frequencies, by default head_dim/2; another number divides the same
    range into finer or coarser steps.
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
