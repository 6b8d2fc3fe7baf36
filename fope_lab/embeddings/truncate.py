"""p-RoPE: the slowest frequencies give way to dimensions without position.

Barbero et al., "Round and Round We Go! What makes Rotary Positional Encodings useful?",
arXiv 2410.06205, §6.1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from fope_lab.config.annotations import Doc, Interval
from fope_lab.embeddings.base import FrequencyTransform
from fope_lab.embeddings.ladder import Ladder


@dataclass(frozen=True, kw_only=True)
class Truncate(
    FrequencyTransform, name="truncate", source="Barbero et al., arXiv 2410.06205, §6.1"
):
    """The int(p·d/2) highest frequencies stay, the others become 0: p = 0 is NoPE, p = 1 RoPE.

    Frequencies keep the exponent's denominator d, so this is not partial rotary.
    """

    p: Annotated[float, Interval(ge=0, le=1), Doc("the share of pairs that rotate, the fastest")]

    @property
    def may_keep_all(self) -> bool:
        """With p = 1, the end of a grid over p."""
        return self.p == 1

    def apply(self, ladder: Ladder) -> Ladder:
        """The ladder with its slow end set to 0."""
        kept = int(self.p * ladder.head_dim // 2)
        return replace(
            ladder,
            frequencies=tuple(
                omega if place < kept else 0.0
                for place, omega in zip(ladder.places, ladder.frequencies, strict=True)
            ),
        )
