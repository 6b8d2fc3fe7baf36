"""Rotary position embedding: pair i of a query or key turns by ω_i radians a token.

Su et al., "RoFormer", arXiv 2104.09864, Eq. 34. Pair i is the dimensions i and i + head_dim/2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from fope_lab.config.annotations import Doc, Interval
from fope_lab.embeddings.base import (
    Embedding,
    FrequencyTransform,
    Shape,
    Tensors,
    canonical,
    hf_transforms,
    not_in_transformers,
)
from fope_lab.embeddings.errors import EmbeddingError
from fope_lab.embeddings.hf_rope import HfRope
from fope_lab.embeddings.ladder import Ladder, rope_ladder

if TYPE_CHECKING:
    from torch import Tensor


STILL_SIN = {"unit": 0.0, "official": 1.0}
"""The sine of a pair that does not turn, by the option `below_floor`."""


@dataclass(frozen=True, kw_only=True)
class Rotary(Embedding, name="rotary", source="Su et al., arXiv 2104.09864, Eq. 34"):
    """RoPE over a frequency ladder: RoPE's own, changed by `transforms` in their order."""

    rotates: ClassVar[bool] = True

    base: Annotated[
        float, Interval(gt=1, le=1e15), Doc("RoPE's θ: pair i turns by θ^(−2i/d) a token")
    ] = 10_000.0
    below_floor: Annotated[
        Literal["unit", "official"],
        Doc(
            "a pair of frequency 0: left as it is (cos 1, sin 0), or sin 1 too, as FoPE's released"
            " code has it, which doubles its score"
        ),
    ] = "unit"
    transforms: Annotated[
        tuple[FrequencyTransform, ...], Doc("changes of RoPE's frequencies, in this order")
    ] = ()

    @property
    def dynamic(self) -> bool:
        """Whether frequencies depend on the length of the sequence."""
        return any(transform.dynamic for transform in self.transforms)

    @property
    def keys_cacheable(self) -> bool:
        """Not if dynamic."""
        return not self.dynamic

    @property
    def shift_invariant(self) -> bool:
        """Not if dynamic."""
        return not self.dynamic

    def ladders(self, shape: Shape, length: int | None = None) -> Iterator[Ladder]:
        """RoPE's ladder, then the ladder after each transform, for a sequence of `length`."""
        yield from transformed(
            rope_ladder(
                shape.head_dim, base=self.base, train_length=shape.train_length, length=length
            ),
            self.transforms,
        )

    def ladder(self, shape: Shape, length: int | None = None) -> Ladder:
        """The ladder after all transforms, for a sequence of `length` (the training length)."""
        *_, ladder = self.ladders(shape, length)
        return ladder

    def pair_frequencies(self, shape: Shape, length: int | None = None) -> tuple[float, ...]:
        """The ladder's."""
        return self.ladder(shape, length).frequencies

    def problems(self, shape: Shape) -> Iterator[str]:
        """Also: a head that does not split into pairs, a transform that fails or has no effect."""
        yield from super().problems(shape)
        if shape.head_dim % 2:
            yield f"head_dim {shape.head_dim} is odd, but a rotation needs pairs of dimensions"
            return
        ladder = rope_ladder(shape.head_dim, base=self.base, train_length=shape.train_length)
        for transform in self.transforms:
            found = [f"{transform.name}: {problem}" for problem in transform.problems(ladder)]
            if found:
                yield from found
                return
            before, ladder = ladder, transform.apply(ladder)
            # What depends on the sequence's length has its effect beyond the training length.
            idle = _same(ladder.frequencies, before.frequencies) and not transform.dynamic
            if idle and not transform.may_keep_all:
                yield (
                    f"{_in_words(transform)} changes no frequency (head_dim {shape.head_dim},"
                    f" base {self.base:g}, training length {shape.train_length})"
                )
                return
        if self.below_floor == "official" and all(self.pair_frequencies(shape)):
            yield (
                "below_floor: official has no effect, as every pair rotates (head_dim"
                f" {shape.head_dim}, base {self.base:g}, training length {shape.train_length})"
            )

    def tensors(self, shape: Shape) -> Tensors:
        """`inv_freq` (head_dim/2,) in radians per token at the training length, float64."""
        return Tensors(constants={"inv_freq": as_tensor(self.pair_frequencies(shape))})

    def attention_factor(self, shape: Shape) -> float:
        """The ladder's."""
        return self.ladder(shape).attention_factor

    def cos_sin(
        self, shape: Shape, tensors: Mapping[str, Tensor], positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """cos and sin of position times frequency, float32 (…, length, head_dim/2)."""
        frequencies = tensors["inv_freq"]
        if self.dynamic and positions.shape[-1]:
            frequencies = self._frequencies_at(shape, positions).to(frequencies)
        cos, sin = cos_sin_at(frequencies, positions)
        return cos, sin.masked_fill(frequencies == 0, STILL_SIN[self.below_floor])

    @classmethod
    def from_hf(cls, rope: HfRope) -> tuple[dict[str, Any], int]:
        """The composition that a rotation of transformers comes to, as a sweep file has it, and the
        original length in tokens. Torch-free.

        Raises KeyError for a rope_type that no transform reads or a parameter that is missing,
        ValueError or TypeError for a parameter that is not a number.
        """
        kind = hf_transforms()[str(rope.rope_type)]
        options, original_length = (None, rope.max_length) if kind is None else kind.from_hf(rope)
        transforms = [] if kind is None or options is None else [{"type": kind.name, **options}]
        base = float(rope.parameters["rope_theta"])
        return {"type": cls.name, "base": base, "transforms": transforms}, original_length

    def to_hf(self, shape: Shape, max_length: int) -> HfRope:
        """RoPE of this base, with the parameters of the one transform, if there is one.

        A subclass is another mechanism, which transformers does not have.
        """
        unknown = [t for t in self.transforms if type(t).to_hf is FrequencyTransform.to_hf]
        problems = [problem for t in self.transforms for problem in t.hf_problems()]
        if type(self) is not Rotary or len(self.transforms) > 1 or unknown:
            problems.insert(0, not_in_transformers(self))
        if problems:
            raise EmbeddingError(problems)
        parameters = {"rope_type": "default", "rope_theta": self.base}
        rope = HfRope(parameters=parameters, max_length=max_length)
        ladder = next(self.ladders(shape))
        for transform in self.transforms:
            rope = transform.to_hf(ladder, rope)
        return rope

    def _frequencies_at(self, shape: Shape, positions: Tensor) -> Tensor:
        """Frequencies (…, 1, head_dim/2) of sequences that end with the last of the positions."""
        import torch

        lengths = positions.amax(-1) + 1
        each = [
            as_tensor(self.pair_frequencies(shape, length)) for length in lengths.flatten().tolist()
        ]
        return torch.stack(each).view(*lengths.shape, 1, -1)


def transformed(ladder: Ladder, transforms: tuple[FrequencyTransform, ...]) -> Iterator[Ladder]:
    """A ladder, then the ladder after each transform."""
    yield ladder
    for transform in transforms:
        ladder = transform.apply(ladder)
        yield ladder


def as_tensor(frequencies: tuple[float, ...]) -> Tensor:
    """Frequencies as float64, on the CPU whatever the default device.

    In float32 a frequency is off by up to 3e-8 of itself: at position 100,000 that is 0.003 radians
    for the fastest pair, and Resonance RoPE's whole wavelengths would be whole no more.
    """
    import torch

    return torch.tensor(frequencies, dtype=torch.float64, device="cpu")


def _same(some: tuple[float, ...], others: tuple[float, ...]) -> bool:
    """Whether two ladders differ by no more than the rounding of float64."""
    return all(math.isclose(a, b, rel_tol=1e-12) for a, b in zip(some, others, strict=True))


def _in_words(transform: FrequencyTransform) -> str:
    """A transform as a sweep file would have it."""
    name, *options = (f"{key}: {value}" for key, value in canonical(transform).items())
    return f"{{{', '.join((name, *options))}}}" if options else transform.name


def cos_sin_at(frequencies: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin of every angle, float32 (…, length, frequencies).

    Angles have the frequencies' dtype: in float32 one of 100,000 radians is off by up to 0.004.
    """
    angles = positions.to(frequencies.dtype)[..., None] * frequencies
    return angles.cos().float(), angles.sin().float()
