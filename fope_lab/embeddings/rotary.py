"""Rotary position embedding: pair i of a query or key rotates by ω_i radians per token.

Su et al., "RoFormer", arXiv 2104.09864, Eq. 34. Pair i is the dimensions i and i + head_dim/2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.named_types import given_options
from fope_lab.embeddings.base import (
    Embedding,
    EmbeddingError,
    Named,
    Shape,
    Tensors,
    not_in_transformers,
)
from fope_lab.embeddings.frequencies import (
    FrequencyTransform,
    HfRope,
    Ladder,
    hf_transforms,
    rope_ladder,
)

if TYPE_CHECKING:
    from torch import Tensor

    from fope_lab.embeddings.scores import CosSin


PARTIAL = "partial_rotary_factor"
"""What transformers calls the fraction of a head that rotates, or the p of p-RoPE."""
STILL_SIN = {"unit": 0.0, "official": 1.0}
"""The sine of a pair that does not rotate, by the option `below_floor`."""


@dataclass(frozen=True, kw_only=True)
class Rotary(Embedding, name="rotary", source="Su et al., arXiv 2104.09864, Eq. 34"):
    """RoPE whose frequencies `transforms` change, in their order."""

    place: ClassVar[str] = "rotation"
    rotates: ClassVar[bool] = True

    base: Annotated[
        float,
        Interval(gt=1, le=1e15),
        Doc("RoPE's θ: pair i rotates by θ^(−2i/d) radians per token."),
    ] = 10_000.0
    below_floor: Annotated[
        Literal["unit", "official"],
        Doc(
            "The sine of a pair of frequency 0, whose cosine is 1. unit: 0, so that the pair stays"
            " as it is. official: 1, which doubles its score, as in FoPE's released code."
        ),
    ] = "unit"
    fraction: Annotated[
        float,
        Interval(gt=0, le=1),
        Doc("The share of a head's dimensions that rotate: the first ones, in pairs of their own."),
    ] = 1.0
    transforms: Annotated[
        tuple[FrequencyTransform, ...], Doc("The changes of RoPE's frequencies, in this order.")
    ] = ()

    @property
    def dynamic(self) -> bool:
        """Whether the frequencies depend on the length of the sequence."""
        return any(transform.dynamic for transform in self.transforms)

    @property
    def keys_cacheable(self) -> bool:
        return not self.dynamic

    @property
    def shift_invariant(self) -> bool:
        return not self.dynamic

    def width(self, shape: Shape) -> int:
        """The dimensions of a head that rotate."""
        return int(shape.head_dim * self.fraction)

    def ladders(
        self, shape: Shape, length: int | None = None, steps: int | None = None
    ) -> Iterator[Ladder]:
        """Yield RoPE's ladder (see `rope_ladder`), then the ladder after each transform."""
        start = rope_ladder(
            self.width(shape),
            base=self.base,
            train_length=shape.train_length,
            length=length,
            steps=steps,
        )
        return transformed(start, self.transforms)

    def ladder(self, shape: Shape, length: int | None = None) -> Ladder:
        """The ladder after all transforms, for `length` tokens (default: the training length)."""
        *_, ladder = self.ladders(shape, length)
        return ladder

    def pair_frequencies(self, shape: Shape, length: int | None = None) -> tuple[float, ...]:
        return self.ladder(shape, length).frequencies

    def problems(self, shape: Shape) -> Iterator[str]:
        yield from super().problems(shape)
        if shape.head_dim % 2:
            yield f"head_dim {shape.head_dim} is odd, but a rotation needs pairs of dimensions"
            return
        if (width := self.width(shape)) % 2 or not width:
            of = f"{self.fraction:g} of head_dim {shape.head_dim}"
            yield f"fraction: {of} is {width}, but a rotation needs pairs of dimensions"
            return
        at = (
            f"(head_dim {shape.head_dim}, base {self.base:g}, training length {shape.train_length})"
        )
        ladder = next(self.ladders(shape))
        for transform in self.transforms:
            problems = [f"{transform.name}: {problem}" for problem in transform.problems(ladder)]
            if problems:
                yield from problems
                return
            before, ladder = ladder, transform.apply(ladder)
            # A dynamic transform may have its effect beyond the training length only.
            idle = _same(ladder.frequencies, before.frequencies) and not transform.dynamic
            if idle and not transform.may_keep_all:
                yield f"{_in_words(transform)} changes no frequency {at}"
                return
        if self.below_floor == "official" and all(self.pair_frequencies(shape)):
            yield f"below_floor: official has no effect, as every pair rotates {at}"

    def tensors(self, shape: Shape) -> Tensors:
        """The constant `inv_freq` (head_dim/2,), float64, at the training length."""
        return Tensors(constants={"inv_freq": as_tensor(self.pair_frequencies(shape))})

    def attention_factor(self, shape: Shape) -> float:
        return self.ladder(shape).attention_factor

    def logit_factor(self, shape: Shape) -> float:
        return self.ladder(shape).logit_factor

    def turn(self, shape: Shape, tensors: Named, positions: Tensor) -> CosSin:
        """What turns queries or keys at positions (…, tokens), the same for all heads."""
        from fope_lab.embeddings.scores import in_halves

        cos, sin = self.cos_sin(shape, tensors, positions)
        factor = self.attention_factor(shape)
        return in_halves(cos.unsqueeze(-3) * factor, sin.unsqueeze(-3) * factor)

    def cos_sin(self, shape: Shape, tensors: Named, positions: Tensor) -> tuple[Tensor, Tensor]:
        frequencies = tensors["inv_freq"]
        if self.dynamic and positions.shape[-1]:
            frequencies = self._frequencies_at(shape, positions).to(frequencies)
        cos, sin = cos_sin_at(frequencies, positions)
        return cos, sin.masked_fill(frequencies == 0, STILL_SIN[self.below_floor])

    @classmethod
    def from_hf(cls, rope: HfRope) -> tuple[dict[str, Any], int]:
        """A rotation of transformers as a composition, and its original length in tokens.

        Raises KeyError for a rope_type that no transform reads or for a missing parameter,
        ValueError or TypeError for a parameter that is not a number.
        """
        kind = hf_transforms()[str(rope.rope_type)]
        options, original_length = (None, rope.max_length) if kind is None else kind.from_hf(rope)
        transforms = [] if kind is None or options is None else [{"type": kind.name, **options}]
        composition = {"type": cls.name, "base": float(rope.parameters["rope_theta"])}
        share = rope.parameters.get(PARTIAL)
        if share is not None and PARTIAL not in (() if kind is None else kind.hf_reads):
            composition["fraction"] = float(share)
        return {**composition, "transforms": transforms}, original_length

    def to_hf(self, shape: Shape, max_length: int) -> HfRope:
        """Write this base, and the parameters of the transform if there is one.

        Raises EmbeddingError for options and transforms that transformers does not have, for more
        than one transform, and for a subclass, which is another mechanism.
        """
        unknown = [t for t in self.transforms if type(t).to_hf is FrequencyTransform.to_hf]
        unknown += [t for t in self.transforms if self.fraction != 1 and PARTIAL in t.hf_reads]
        problems = [problem for t in self.transforms for problem in t.hf_problems()]
        beyond = given_options(self).keys() - {"base", "transforms", "fraction"}
        if type(self) is not Rotary or beyond or len(self.transforms) > 1 or unknown:
            problems.insert(0, not_in_transformers(self))
        if problems:
            raise EmbeddingError(problems)
        parameters = {"rope_type": "default", "rope_theta": self.base}
        rope = HfRope(parameters=parameters, max_length=max_length)
        ladder = next(self.ladders(shape))
        for transform in self.transforms:
            rope = transform.to_hf(ladder, rope)
        return rope if self.fraction == 1 else rope.updated(**{PARTIAL: self.fraction})

    def _frequencies_at(self, shape: Shape, positions: Tensor) -> Tensor:
        """The frequencies (…, 1, head_dim/2) of sequences that end with the last positions."""
        import torch

        lengths = positions.amax(-1) + 1
        each = [
            as_tensor(self.pair_frequencies(shape, length)) for length in lengths.flatten().tolist()
        ]
        return torch.stack(each).view(*lengths.shape, 1, -1)


def transformed(ladder: Ladder, transforms: tuple[FrequencyTransform, ...]) -> Iterator[Ladder]:
    """Yield a ladder, then the ladder after each transform."""
    yield ladder
    for transform in transforms:
        ladder = transform.apply(ladder)
        yield ladder


def as_tensor(frequencies: tuple[float, ...]) -> Tensor:
    """Frequencies as a float64 tensor, on the CPU even if the default device is another.

    In float32 the relative error of a frequency is up to 3e-8. At position 100,000 this is 0.003
    radians for the fastest pair, and Resonance RoPE's wavelengths would not be whole numbers.
    """
    import torch

    return torch.tensor(frequencies, dtype=torch.float64, device="cpu")


def _same(left: tuple[float, ...], right: tuple[float, ...]) -> bool:
    return all(math.isclose(a, b, rel_tol=1e-12) for a, b in zip(left, right, strict=True))


def _in_words(transform: FrequencyTransform) -> str:
    name, *options = (f"{key}: {value}" for key, value in transform.canonical().items())
    return f"{{{', '.join((name, *options))}}}" if options else transform.name


def cos_sin_at(frequencies: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """The cosines and sines of positions times frequencies, float32 (…, length, frequencies).

    Angles have the dtype of the frequencies: an angle of 100,000 radians in float32 has an error of
    up to 0.004.
    """
    angles = positions.to(frequencies.dtype)[..., None] * frequencies
    return angles.cos().float(), angles.sin().float()
