"""Position interpolation: positions, and so all frequencies, are divided by a factor.

Chen et al., "Extending Context Window of Large Language Models via Positional Interpolation",
arXiv 2306.15595, Eq. 4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fope_lab.embeddings.base import FrequencyTransform
from fope_lab.embeddings.ladder import Ladder
from fope_lab.embeddings.shared_options import Factor


@dataclass(frozen=True, kw_only=True)
class Interpolate(
    FrequencyTransform, name="interpolate", source="Chen et al., arXiv 2306.15595, Eq. 4"
):
    """ω/s for every frequency ω."""

    elementwise: ClassVar[bool] = True

    factor: Factor

    def apply(self, ladder: Ladder) -> Ladder:
        """The ladder divided by `factor`."""
        return replace(
            ladder, frequencies=tuple(omega / self.factor for omega in ladder.frequencies)
        )
