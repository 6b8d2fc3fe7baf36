"""NTK-aware scaling: a larger base keeps the fastest pair and divides the slowest by s.

bloc97, "NTK-Aware Scaled RoPE" (2023), as in Peng et al., YaRN, arXiv 2309.00071, Eq. 16 and
(dynamic) §3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.problems import Problem
from fope_lab.embeddings.frequencies import (
    Factor,
    FrequencyTransform,
    HfRope,
    Ladder,
    OriginalLength,
)

BASE_SCALINGS: Mapping[str, Callable[[float, int], float]] = {
    "ntk": lambda factor, head_dim: factor ** (head_dim / (head_dim - 2)),
    "linear": lambda factor, head_dim: factor,
}
BaseScaling = Annotated[
    Literal["ntk", "linear"],
    Doc("The factor of the base. ntk: s^(d/(d−2)). linear: s, as in the paper of Resonance RoPE."),
]


def _rescaled(ladder: Ladder, scale: float) -> Ladder:
    rescaled = ladder.mapped(lambda place, omega: omega * scale ** -(2 * place / ladder.head_dim))
    return replace(rescaled, base=ladder.base * scale)


def _too_narrow(ladder: Ladder) -> Iterator[str]:
    """The frequency of a single pair does not depend on the base."""
    if ladder.head_dim < 4:
        yield f"head_dim {ladder.head_dim} is too small to scale the base: it must be at least 4"


@dataclass(frozen=True, kw_only=True)
class Ntk(FrequencyTransform, name="ntk", source="Peng et al., arXiv 2309.00071, Eq. 16"):
    """The base becomes base·s^(d/(d−2)), where d is head_dim."""

    factor: Factor
    base_scaling: BaseScaling = "ntk"

    def problems(self, ladder: Ladder) -> Iterator[str]:
        return _too_narrow(ladder)

    def apply(self, ladder: Ladder) -> Ladder:
        return _rescaled(ladder, BASE_SCALINGS[self.base_scaling](self.factor, ladder.head_dim))

    def to_hf(self, ladder: Ladder, rope: HfRope) -> HfRope:
        return rope.updated(rope_theta=self.apply(ladder).base)  # without a rope_type


@dataclass(frozen=True, kw_only=True)
class DynamicNtk(
    FrequencyTransform, name="dynamic_ntk", source="Peng et al., arXiv 2309.00071, §3.3"
):
    """NTK-aware scaling by s = max(1, 1 + g·(l/L − 1)) for a sequence of l tokens.

    L is `original_length`, or the training length; no frequency changes up to it. g is `growth`,
    which is 1 in the paper, and the `factor` of "dynamic" in transformers.
    """

    dynamic: ClassVar[bool] = True
    hf_types: ClassVar[tuple[str, ...]] = ("dynamic",)

    original_length: OriginalLength | None = None
    base_scaling: BaseScaling = "ntk"
    growth: Annotated[
        float,
        Interval(ge=1, le=1e6),
        Doc("The growth of s with each original length beyond the first."),
    ] = 1.0

    def problems(self, ladder: Ladder) -> Iterator[str]:
        return _too_narrow(ladder)

    def apply(self, ladder: Ladder) -> Ladder:
        times = ladder.length / (self.original_length or ladder.train_length)
        factor = max(1.0, self.growth * times - (self.growth - 1))
        return _rescaled(ladder, BASE_SCALINGS[self.base_scaling](factor, ladder.head_dim))

    @classmethod
    def from_hf(cls, rope: HfRope) -> tuple[Mapping[str, Any] | None, int]:
        return {"growth": float(rope.parameters["factor"])}, rope.max_length

    def hf_problems(self) -> Iterator[Problem]:
        if self.base_scaling != "ntk":
            at = ("dynamic_ntk", "base_scaling")
            yield Problem(at, f"found {self.base_scaling}", allowed=("ntk",))

    def to_hf(self, ladder: Ladder, rope: HfRope) -> HfRope:
        # The original length of "dynamic" is max_position_embeddings.
        longest = self.original_length or ladder.train_length
        return replace(rope.updated(rope_type="dynamic", factor=self.growth), max_length=longest)
