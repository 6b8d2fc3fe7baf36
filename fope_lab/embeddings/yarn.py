"""YaRN: slow frequencies divided by a factor, fast ones kept, a ramp between them.

Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", arXiv 2309.00071.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated

from fope_lab.embeddings.base import Bounds, FrequencyTransform
from fope_lab.embeddings.frequencies import Ladder


@dataclass(frozen=True, kw_only=True)
class Yarn(FrequencyTransform, name="yarn"):
    """NTK-by-parts interpolation by `factor` (s), and YaRN's attention factor 0.1·ln s + 1.

    As Hugging Face computes it, the ramp of §3.2 runs over the pair's index: it is 0 (kept) at the
    pair of `beta` cycles in the original length and 1 (divided by s) at the pair of `alpha` cycles,
    the first index rounded down and the second up.
    """

    factor: Annotated[float, Bounds(ge=1)]
    original_length: Annotated[int, Bounds(ge=1)] | None = None
    alpha: Annotated[float, Bounds(gt=0)] = 1.0
    beta: Annotated[float, Bounds(gt=0)] = 32.0

    def __post_init__(self) -> None:
        if self.alpha >= self.beta:
            raise ValueError(f"alpha {self.alpha:g} must be less than beta {self.beta:g}")

    def apply(self, ladder: Ladder) -> Ladder:
        """The ladder interpolated by parts; frequencies of 0 stay 0."""
        # Hugging Face bounds each end on one side only. Where every pair is faster than both, its
        # ramp then turns around and divides them all; bounded on both sides, they are kept.
        bounds = (0, ladder.head_dim - 1)
        first = _clamp(math.floor(self._pair_of(self.beta, ladder)), *bounds)
        last = _clamp(math.ceil(self._pair_of(self.alpha, ladder)), *bounds)
        width = (last - first) or 0.001

        def interpolated(pair: int, omega: float) -> float:
            ramp = _clamp((pair - first) / width, 0.0, 1.0)
            return omega * (1 - ramp) + omega / self.factor * ramp

        return replace(
            ladder,
            frequencies=tuple(
                interpolated(pair, omega) for pair, omega in enumerate(ladder.frequencies)
            ),
            attention_factor=ladder.attention_factor * (0.1 * math.log(self.factor) + 1.0),
        )

    def _pair_of(self, cycles: float, ladder: Ladder) -> float:
        """The (fractional) pair that turns `cycles` times in the original length."""
        length = self.original_length or ladder.train_length
        frequency = 2 * math.pi * cycles / length
        return -ladder.head_dim * math.log(frequency) / (2 * math.log(ladder.base))


def _clamp(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
