"""Position interpolation: positions, and so all frequencies, are divided by a factor.

Chen et al., "Extending Context Window of Large Language Models via Positional Interpolation",
arXiv 2306.15595, Eq. 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fope_lab.embeddings.frequencies import Factor, FrequencyTransform, HfRope, Ladder


@dataclass(frozen=True, kw_only=True)
class Interpolate(
    FrequencyTransform, name="interpolate", source="Chen et al., arXiv 2306.15595, Eq. 4"
):
    """Every frequency ω becomes ω/s."""

    elementwise: ClassVar[bool] = True
    hf_types: ClassVar[tuple[str, ...]] = ("linear",)

    factor: Factor

    def apply(self, ladder: Ladder) -> Ladder:
        return ladder.mapped(lambda place, omega: omega / self.factor)

    @classmethod
    def from_hf(cls, rope: HfRope) -> tuple[Mapping[str, Any] | None, int]:
        factor = float(rope.parameters["factor"])
        return ({"factor": factor} if factor != 1 else None), rope.max_length

    def to_hf(self, ladder: Ladder, rope: HfRope) -> HfRope:
        return rope.updated(rope_type="linear", factor=self.factor)
