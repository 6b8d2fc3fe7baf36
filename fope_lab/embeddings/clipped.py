"""Clipped RoPE: the slowest pairs turn slower, down to a standstill, along half a cosine.

arXiv 2602.05258, where it is called CoPE; contextual position encoding (`cope-contextual`), which
has the same name, is another method.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

from fope_lab.config.annotations import Doc, Interval
from fope_lab.embeddings.frequencies import FrequencyTransform, Ladder


@dataclass(frozen=True, kw_only=True)
class Clipped(FrequencyTransform, name="clipped", source="arXiv 2602.05258"):
    """The slowest n pairs × ½(1 + cos(πk/(n − 1))), k = 0 … n − 1: a soft floor."""

    pairs: Annotated[int, Interval(ge=1), Doc("n, how many of the slowest pairs change.")]
    hard: Annotated[bool, Doc("Whether they get frequency 0 instead, as by a hard floor.")] = False

    def problems(self, ladder: Ladder) -> Iterator[str]:
        if self.pairs > len(ladder.frequencies):
            yield f"found {self.pairs} pairs, of which there are {len(ladder.frequencies)}"
        if self.pairs == 1 and not self.hard:
            yield "1 pair has no slope: give 2 or more, or hard: true"

    def apply(self, ladder: Ladder) -> Ladder:
        kept = len(ladder.frequencies) - self.pairs
        slowed = (omega * self._slope(k) for k, omega in enumerate(ladder.frequencies[kept:]))
        return replace(ladder, frequencies=(*ladder.frequencies[:kept], *slowed))

    def _slope(self, k: int) -> float:
        last = self.pairs - 1
        return 0.0 if self.hard or k == last else (1 + math.cos(math.pi * k / last)) / 2
