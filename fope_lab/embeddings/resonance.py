"""Resonance RoPE: every wavelength is a whole number of tokens.

Wang et al., "Resonance RoPE: Improving Context Length Generalization of Large Language Models",
arXiv 2403.00071, §4 (Algorithm 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from fope_lab.embeddings.frequencies import FrequencyTransform, Ladder


@dataclass(frozen=True, kw_only=True)
class Resonance(FrequencyTransform, name="resonance", source="Wang et al., arXiv 2403.00071, §4"):
    """Each wavelength λ = 2π/ω is rounded to the nearest whole number, half to even; 0 stays 0.

    Two positions that are one wavelength apart then look the same to a pair, so that a pair that
    completes a cycle within the training length sees nothing new beyond it (Theorem 1). Resonance
    comes after any scaling.
    """

    elementwise: ClassVar[bool] = True

    def apply(self, ladder: Ladder) -> Ladder:
        return ladder.mapped(
            lambda place, omega: 2 * math.pi / round(2 * math.pi / omega) if omega else 0.0
        )
