"""NTK-aware scaling: a larger base, which leaves the fastest pair alone and slows the slowest by s.

bloc97, "NTK-Aware Scaled RoPE" (2023), as in Peng et al., YaRN, arXiv 2309.00071, Eq. 16 and
(dynamic) §3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.problems import Problem
from fope_lab.embeddings.base import FrequencyTransform
from fope_lab.embeddings.hf_rope import HfRope
from fope_lab.embeddings.ladder import Ladder
from fope_lab.embeddings.shared_options import Factor, OriginalLength

BASE_SCALINGS: Mapping[str, Callable[[float, int], float]] = {
    "ntk": lambda factor, head_dim: factor ** (head_dim / (head_dim - 2)),
    "linear": lambda factor, head_dim: factor,
}
BaseScaling = Annotated[
    Literal["ntk", "linear"],
    Doc("what the base is multiplied by: s^(d/(d−2)), or s as in Resonance RoPE's paper"),
]


def _rescaled(ladder: Ladder, scale: float) -> Ladder:
    """The ladder of a base `scale` times as large."""
    return replace(
        ladder,
        base=ladder.base * scale,
        frequencies=tuple(
            omega * scale ** -(2 * place / ladder.head_dim)
            for place, omega in zip(ladder.places, ladder.frequencies, strict=True)
        ),
    )


def _too_narrow(ladder: Ladder) -> Iterator[str]:
    if ladder.head_dim < 4:
        yield f"head_dim {ladder.head_dim} is too small to scale the base: it must be at least 4"


@dataclass(frozen=True, kw_only=True)
class Ntk(FrequencyTransform, name="ntk", source="Peng et al., arXiv 2309.00071, Eq. 16"):
    """The base becomes base·s^(d/(d−2))."""

    factor: Factor
    base_scaling: BaseScaling = "ntk"

    def problems(self, ladder: Ladder) -> Iterator[str]:
        """A head of one pair, whose frequency is 1 whatever the base."""
        return _too_narrow(ladder)

    def apply(self, ladder: Ladder) -> Ladder:
        """The ladder of the larger base."""
        return _rescaled(ladder, BASE_SCALINGS[self.base_scaling](self.factor, ladder.head_dim))

    def to_hf(self, ladder: Ladder, rope: HfRope) -> HfRope:
        """The rotation with the larger base: transformers needs no `rope_type` for it."""
        return rope.updated(rope_theta=self.apply(ladder).base)


@dataclass(frozen=True, kw_only=True)
class DynamicNtk(
    FrequencyTransform, name="dynamic_ntk", source="Peng et al., arXiv 2309.00071, §3.3"
):
    """NTK-aware scaling by s = 1 + g·(l/L − 1), at least 1, for a sequence of length l.

    L is `original_length`, or the training length. Up to it nothing changes. g is `growth`: 1 in
    the paper, and the `factor` of Hugging Face's "dynamic".
    """

    hf_types: ClassVar[tuple[str, ...]] = ("dynamic",)

    original_length: OriginalLength | None = None
    base_scaling: BaseScaling = "ntk"
    growth: Annotated[
        float,
        Interval(ge=1, le=1e6),
        Doc("how much s grows with each original length beyond the first"),
    ] = 1.0

    @property
    def dynamic(self) -> bool:
        """Always."""
        return True

    def problems(self, ladder: Ladder) -> Iterator[str]:
        """A head of one pair, whose frequency is 1 whatever the base."""
        return _too_narrow(ladder)

    def apply(self, ladder: Ladder) -> Ladder:
        """The ladder of the base for the ladder's current length."""
        times = ladder.length / (self.original_length or ladder.train_length)
        factor = max(1.0, self.growth * times - (self.growth - 1))
        return _rescaled(ladder, BASE_SCALINGS[self.base_scaling](factor, ladder.head_dim))

    @classmethod
    def from_hf(cls, rope: HfRope) -> tuple[Mapping[str, Any] | None, int]:
        """The `factor` of "dynamic", which is the growth here."""
        return {"growth": float(rope.parameters["factor"])}, rope.max_length

    def hf_problems(self) -> Iterator[Problem]:
        """A base that is multiplied by s alone, which transformers does not have."""
        if self.base_scaling != "ntk":
            at = ("dynamic_ntk", "base_scaling")
            yield Problem(at, f"found {self.base_scaling}", allowed=("ntk",))

    def to_hf(self, ladder: Ladder, rope: HfRope) -> HfRope:
        """The rotation with rope_type "dynamic", which grows from `max_length`."""
        longest = self.original_length or ladder.train_length
        return replace(rope.updated(rope_type="dynamic", factor=self.growth), max_length=longest)
