"""The clip floor of FoPE: a frequency too slow for one cycle in the training length becomes 0.

Hua et al., "Fourier Position Embedding", arXiv 2412.17739, Eq. 13.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from fope_lab.embeddings.frequencies import FrequencyTransform, Ladder, OriginalLength


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
        floor = 2 * math.pi / (self.original_length or ladder.train_length)
        return ladder.mapped(lambda place, omega: 0.0 if omega < floor else omega)
