"""YaRN: slow frequencies are divided by a factor, fast ones kept, with a ramp in between.

Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", arXiv 2309.00071.
"""

from __future__ import annotations

import math
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


@dataclass(frozen=True, kw_only=True)
class Yarn(FrequencyTransform, name="yarn", source="Peng et al., arXiv 2309.00071, §3.2–3.4"):
    """NTK-by-parts interpolation by `factor` (s), and YaRN's attention factor 0.1·ln s + 1.
    DeepSeek-V2 (arXiv 2405.04434) has a weaker one, and one of all dimensions.

    The ramp of §3.2 runs over the index of the pair, as in transformers. It is 0 (kept) at the pair
    of `beta` cycles in the original length and 1 (divided by s) at the pair of `alpha` cycles.
    Raises ValueError for options that contradict each other.
    """

    hf_types: ClassVar[tuple[str, ...]] = ("yarn", "llama3")

    factor: Factor
    original_length: OriginalLength | None = None
    alpha: Annotated[
        float,
        Interval(gt=0),
        Doc("The cycles in the original length up to which a pair is divided."),
    ] = 1.0
    beta: Annotated[
        float, Interval(gt=0), Doc("The cycles in the original length from which a pair is kept.")
    ] = 32.0
    ramp: Annotated[
        Literal["index", "cycles"],
        Doc(
            "What the ramp is linear in. index: the number of the pair, as in the released code."
            " cycles: the cycles L/λ of the pair, as in the paper."
        ),
    ] = "index"
    truncate: Annotated[
        bool,
        Doc("Whether the ends of the ramp over the index are rounded outwards to whole pairs."),
    ] = True
    blend: Annotated[
        Literal["frequency", "wavelength"],
        Doc(
            "What the ramp mixes. frequency: the pair's frequencies before and after division, as"
            " in YaRN. wavelength: their wavelengths, as in the paper of Resonance RoPE."
        ),
    ] = "frequency"
    attention_factor: (
        Annotated[
            float,
            Interval(gt=0, le=100),
            Doc("The factor of rotated queries and keys, 1 for none (default: 0.1·ln s + 1)."),
        ]
        | None
    ) = None
    mscale: Annotated[
        float, Interval(ge=0, le=100), Doc("The m of DeepSeek's attention factor 0.1·m·ln s + 1.")
    ] = 1.0
    mscale_all_dim: Annotated[
        float,
        Interval(ge=0, le=100),
        Doc(
            "The n of DeepSeek's factor 0.1·n·ln s + 1, whose square multiplies all logits, and by"
            " which it divides the attention factor."
        ),
    ] = 0.0

    def __post_init__(self) -> None:
        if self.alpha >= self.beta:
            raise ValueError(f"alpha {self.alpha:g} must be less than beta {self.beta:g}")
        if self.attention_factor is not None and (self.mscale, self.mscale_all_dim) != (1, 0):
            raise ValueError("attention_factor can't be used together with mscale, mscale_all_dim")
        if self.ramp == "cycles" and not self.truncate:
            raise ValueError("truncate: false has no effect on a ramp over cycles")

    def apply(self, ladder: Ladder) -> Ladder:
        ramp, blend = RAMPS[self.ramp](self, ladder), BLENDS[self.blend]
        factor, of_all = self.attention_factor, _deepseek_scale(self.factor, self.mscale_all_dim)
        if factor is None:
            factor = _deepseek_scale(self.factor, self.mscale) / of_all
        blended = ladder.mapped(
            lambda place, omega: blend(omega, self.factor, ramp(place, omega)) if omega else 0.0
        )
        return replace(
            blended,
            attention_factor=ladder.attention_factor * factor,
            logit_factor=ladder.logit_factor * of_all**2,
        )

    def cycles(self, omega: float, ladder: Ladder) -> float:
        """The number of cycles L/λ that a frequency completes in the original length."""
        return omega * (self.original_length or ladder.train_length) / (2 * math.pi)

    def place_of(self, cycles: float, ladder: Ladder) -> float:
        """The place in the ladder of the frequency that completes this number of cycles."""
        omega = cycles / self.cycles(1.0, ladder)
        return -ladder.head_dim * math.log(omega) / (2 * math.log(ladder.base))

    @classmethod
    def from_hf(cls, rope: HfRope) -> tuple[Mapping[str, Any] | None, int]:
        return HF_READERS[str(rope.rope_type)](rope), rope.original_length

    def hf_problems(self) -> Iterator[Problem]:
        if self.blend != "frequency":
            yield Problem(("yarn", "blend"), f"found {self.blend}", allowed=("frequency",))
        if self.ramp == "cycles" and self.attention_factor != 1.0:
            fault = "a ramp over cycles is Llama 3's"
            yield Problem(("yarn", "attention_factor"), fault, allowed=("1",))
        if self.mscale_all_dim:
            fault = f"found {self.mscale_all_dim:g}, which Llama's attention does not have"
            yield Problem(("yarn", "mscale_all_dim"), fault, allowed=("0",))

    def to_hf(self, ladder: Ladder, rope: HfRope) -> HfRope:
        return rope.updated(
            **HF_WRITERS[self.ramp](self),
            factor=self.factor,
            original_max_position_embeddings=self.original_length or ladder.train_length,
        )


Ramp = Callable[[float, float], float]
"""A function of a place in the ladder and its frequency, from 0 (kept) to 1 (divided)."""


def _index_ramp(yarn: Yarn, ladder: Ladder) -> Ramp:
    first, last = yarn.place_of(yarn.beta, ladder), yarn.place_of(yarn.alpha, ladder)
    if yarn.truncate:
        first, last = math.floor(first), math.ceil(last)
    # Transformers bounds each end on one side only. If every pair is faster than both ends, its
    # ramp turns around and divides them all; if every pair is slower, it keeps them all. Here the
    # former are kept and the latter divided.
    if last < 0:
        return lambda place, omega: 1.0
    first, last = (_clamp(end, 0, ladder.head_dim - 1) for end in (first, last))
    width = (last - first) or 0.001
    return lambda place, omega: _clamp((place - first) / width, 0.0, 1.0)


def _cycles_ramp(yarn: Yarn, ladder: Ladder) -> Ramp:
    """The ramp 1 − γ with the γ of Eq. 18."""
    width = yarn.beta - yarn.alpha
    return lambda place, omega: _clamp((yarn.beta - yarn.cycles(omega, ladder)) / width, 0.0, 1.0)


RAMPS: Mapping[str, Callable[[Yarn, Ladder], Ramp]] = {"index": _index_ramp, "cycles": _cycles_ramp}


BLENDS: Mapping[str, Callable[[float, float, float], float]] = {
    "frequency": lambda omega, factor, divided: omega * (1 - divided) + omega / factor * divided,
    "wavelength": lambda omega, factor, divided: omega / (divided * factor + (1 - divided)),
}
"""The new frequency by the option `blend`, from the frequency, s, and the ramp 1 − γ. `wavelength`
gives the wavelength (1 − γ)·s·λ + γ·λ (Resonance RoPE, arXiv 2403.00071, §3.3)."""


def _clamp(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def _from_hf_yarn(rope: HfRope) -> Mapping[str, Any] | None:
    given = rope.parameters
    factor = float(given.get("factor") or rope.max_length / rope.original_length)
    scale = given.get("attention_factor")
    gains = given.get("mscale"), given.get("mscale_all_dim")
    if scale is None and all(gains):
        above, below = (_deepseek_scale(factor, float(gain)) for gain in gains if gain)
        scale = above / below
    if factor == 1 and scale in (None, 1):
        return None
    return {
        "factor": factor,
        "alpha": float(given.get("beta_slow") or 1),
        "beta": float(given.get("beta_fast") or 32),
        "truncate": given.get("truncate", True),
        "attention_factor": None if scale is None else float(scale),
    }


def _deepseek_scale(factor: float, gain: float) -> float:
    """DeepSeek's generalisation of YaRN's attention factor."""
    return 0.1 * gain * math.log(factor) + 1.0 if factor > 1 else 1.0


def _from_hf_llama3(rope: HfRope) -> Mapping[str, Any] | None:
    """Read Llama 3's scaling: YaRN's ramp over the cycles L/λ, without an attention factor."""
    given = rope.parameters
    factor = float(given["factor"])
    if factor == 1:
        return None
    return {
        "ramp": "cycles",
        "factor": factor,
        "alpha": float(given["low_freq_factor"]),
        "beta": float(given["high_freq_factor"]),
        "attention_factor": 1.0,
    }


HF_READERS: Mapping[str, Callable[[HfRope], Mapping[str, Any] | None]] = {
    "yarn": _from_hf_yarn,
    "llama3": _from_hf_llama3,
}
"""From a rotation to the options of `Yarn`, by `rope_type`."""


def _to_hf_yarn(yarn: Yarn) -> dict[str, Any]:
    rope = {"beta_slow": yarn.alpha, "beta_fast": yarn.beta, "truncate": yarn.truncate}
    factor = yarn.attention_factor
    if yarn.mscale != 1:
        factor = _deepseek_scale(yarn.factor, yarn.mscale)
    return {"rope_type": "yarn", **rope, **({} if factor is None else {"attention_factor": factor})}


def _to_hf_llama3(yarn: Yarn) -> dict[str, Any]:
    ends = {"low_freq_factor": yarn.alpha, "high_freq_factor": yarn.beta}
    return {"rope_type": "llama3", **ends}


HF_WRITERS: Mapping[str, Callable[[Yarn], dict[str, Any]]] = {
    "index": _to_hf_yarn,
    "cycles": _to_hf_llama3,
}
"""From a `Yarn` to the parameters that only its `rope_type` has, by `ramp`."""
