"""p-RoPE: the slowest frequencies become 0, which leaves dimensions without position.

Barbero et al., "Round and Round We Go! What makes Rotary Positional Encodings useful?",
arXiv 2410.06205, §6.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fope_lab.config.annotations import Doc, Interval
from fope_lab.embeddings.frequencies import FrequencyTransform, Ladder


@dataclass(frozen=True, kw_only=True)
class Truncate(
    FrequencyTransform, name="truncate", source="Barbero et al., arXiv 2410.06205, §6.1"
):
    """The int(p·d/2) highest frequencies stay and the others become 0: p = 0 is NoPE, p = 1 RoPE.

    The remaining frequencies keep the denominator d of the exponent, unlike in partial rotary
    embeddings.
    """

    p: Annotated[
        float,
        Interval(ge=0, le=1),
        Doc("The fraction of pairs that rotate, which are the fastest."),
    ]

    @property
    def may_keep_all(self) -> bool:
        return self.p == 1  # the end of a grid over p

    def apply(self, ladder: Ladder) -> Ladder:
        kept = int(self.p * ladder.head_dim // 2)
        return ladder.mapped(lambda place, omega: omega if place < kept else 0.0)
