"""p-RoPE: the slowest frequencies become 0, which leaves dimensions without position.

Barbero et al., "Round and Round We Go! What makes Rotary Positional Encodings useful?",
arXiv 2410.06205, §6.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from fope_lab.config.annotations import Doc, Interval
from fope_lab.embeddings.frequencies import Factor, FrequencyTransform, HfRope, Ladder


@dataclass(frozen=True, kw_only=True)
class Truncate(
    FrequencyTransform, name="truncate", source="Barbero et al., arXiv 2410.06205, §6.1"
):
    """The int(p·d/2) highest frequencies stay, or are divided by a factor, and the others become 0:
    p = 0 is NoPE, p = 1 RoPE.

    The remaining frequencies keep the denominator d of the exponent, unlike in partial rotary
    embeddings. Transformers has it as `proportional` (Gemma 4).
    """

    hf_types: ClassVar[tuple[str, ...]] = ("proportional",)

    hf_reads: ClassVar[tuple[str, ...]] = ("partial_rotary_factor",)

    p: Annotated[
        float,
        Interval(ge=0, le=1),
        Doc("The fraction of pairs that rotate, which are the fastest."),
    ]
    factor: Factor = 1.0

    @property
    def may_keep_all(self) -> bool:
        return self.p == 1  # the end of a grid over p

    def apply(self, ladder: Ladder) -> Ladder:
        kept = int(self.p * ladder.head_dim // 2)
        return ladder.mapped(lambda place, omega: omega / self.factor if place < kept else 0.0)

    @classmethod
    def from_hf(cls, rope: HfRope) -> tuple[Mapping[str, Any] | None, int]:
        share = float(rope.parameters.get("partial_rotary_factor", 1))
        factor = float(rope.parameters.get("factor", 1))
        given = {"p": share, "factor": factor}
        return (None if share == factor == 1 else given), rope.max_length

    def to_hf(self, ladder: Ladder, rope: HfRope) -> HfRope:
        return rope.updated(
            rope_type="proportional", partial_rotary_factor=self.p, factor=self.factor
        )
