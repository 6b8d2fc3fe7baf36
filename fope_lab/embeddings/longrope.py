"""LongRoPE: each frequency is divided by a factor of its own, which a search has found.

Ding et al., "LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens", arXiv 2402.13753,
and Phi-3's released code for the switch between two lists and the attention factor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from fope_lab.config.annotations import Doc, Interval
from fope_lab.embeddings.frequencies import (
    Factor,
    FrequencyTransform,
    HfRope,
    Ladder,
    OriginalLength,
)

Factors = tuple[Annotated[float, Interval(gt=0)], ...]


@dataclass(frozen=True, kw_only=True)
class LongRope(FrequencyTransform, name="longrope", source="Ding et al., arXiv 2402.13753, §3"):
    """Frequencies are divided by `short` in sequences of up to the original length L, and by `long`
    in longer ones. Rotated queries and keys are multiplied by √(1 + ln s / ln L)."""

    dynamic: ClassVar[bool] = True
    hf_types: ClassVar[tuple[str, ...]] = ("longrope",)
    hf_reads: ClassVar[tuple[str, ...]] = ("short_factor", "long_factor")

    factor: Factor
    short: Annotated[Factors, Doc("The divisor of each frequency, up to the original length.")]
    long: Annotated[Factors, Doc("The divisor of each frequency, beyond the original length.")]
    original_length: OriginalLength | None = None
    attention_factor: Annotated[
        float | None, Interval(gt=0), Doc("In place of √(1 + ln s / ln L).")
    ] = None

    def problems(self, ladder: Ladder) -> Iterator[str]:
        pairs = len(ladder.frequencies)
        for name, factors in (("short", self.short), ("long", self.long)):
            if len(factors) != pairs:
                yield f"{name}: found {len(factors)} numbers for {pairs} pairs of dimensions"

    def apply(self, ladder: Ladder) -> Ladder:
        original = self.original_length or ladder.train_length
        divisors = self.long if ladder.length > original else self.short
        pairs = zip(ladder.frequencies, divisors, strict=True)
        mscale = self.attention_factor
        if mscale is None:
            mscale = math.sqrt(1 + math.log(self.factor) / math.log(max(original, 2)))
        return replace(
            ladder,
            frequencies=tuple(omega / divisor for omega, divisor in pairs),
            attention_factor=ladder.attention_factor * mscale,
        )

    @classmethod
    def from_hf(cls, rope: HfRope) -> tuple[Mapping[str, Any] | None, int]:
        given, original = rope.parameters, rope.original_length
        factor = float(given.get("factor") or rope.max_length / original)
        own = given.get("attention_factor")
        options: dict[str, Any] = {
            "factor": factor,
            "short": [float(each) for each in given["short_factor"]],
            "long": [float(each) for each in given["long_factor"]],
        }
        return options | ({} if own is None else {"attention_factor": float(own)}), original

    def to_hf(self, ladder: Ladder, rope: HfRope) -> HfRope:
        parameters: dict[str, Any] = {
            "rope_type": "longrope",
            "factor": self.factor,
            "short_factor": list(self.short),
            "long_factor": list(self.long),
            "original_max_position_embeddings": self.original_length or ladder.train_length,
        }
        if self.attention_factor is not None:
            parameters["attention_factor"] = self.attention_factor
        return rope.updated(**parameters)
