"""Rotary position embedding: pair i of a query or key turns by ω_i radians a token.

Su et al., "RoFormer", arXiv 2104.09864, Eq. 34. Pair i is the dimensions i and i + head_dim/2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from fope_lab.embeddings.base import (
    Bounds,
    Embedding,
    FrequencyTransform,
    Shape,
    Tensors,
    canonical,
)
from fope_lab.embeddings.frequencies import Ladder, rope_ladder

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Rotary(Embedding, name="rotary"):
    """RoPE over a frequency ladder: RoPE's own, changed by `transforms` in their order."""

    rotates: ClassVar[bool] = True

    base: Annotated[float, Bounds(gt=1)] = 10_000.0
    transforms: tuple[FrequencyTransform, ...] = ()

    def ladders(self, shape: Shape) -> Iterator[Ladder]:
        """RoPE's ladder, then the ladder after each transform."""
        ladder = rope_ladder(shape.head_dim, base=self.base, train_length=shape.train_length)
        yield ladder
        for transform in self.transforms:
            ladder = transform.apply(ladder)
            yield ladder

    def ladder(self, shape: Shape) -> Ladder:
        """The ladder after all transforms."""
        *_, ladder = self.ladders(shape)
        return ladder

    def problems(self, shape: Shape) -> Iterator[str]:
        """Also: a head that does not split into pairs, a transform without effect."""
        yield from super().problems(shape)
        if shape.head_dim % 2:
            yield f"head_dim {shape.head_dim} is odd, but a rotation needs pairs of dimensions"
            return
        before, *ladders = self.ladders(shape)
        for transform, ladder in zip(self.transforms, ladders, strict=True):
            if ladder.frequencies == before.frequencies:
                yield (
                    f"{canonical(transform)} changes no frequency (head_dim {shape.head_dim},"
                    f" base {self.base:g}, training length {shape.train_length})"
                )
            before = ladder

    def tensors(self, shape: Shape) -> Tensors:
        """`inv_freq` (head_dim/2,) in radians per token, float32."""
        import torch

        frequencies = self.ladder(shape).frequencies
        return Tensors(
            constants={"inv_freq": torch.tensor(frequencies, dtype=torch.float32, device="cpu")}
        )

    def attention_factor(self, shape: Shape) -> float:
        """The ladder's."""
        return self.ladder(shape).attention_factor

    def tables(self, tensors: Mapping[str, Tensor], positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin of position times frequency, float32 (…, length, head_dim/2)."""
        return cos_sin(tensors["inv_freq"], positions)


def cos_sin(frequencies: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin of every angle, float32 (…, length, frequencies).

    Angles are float64: at position 100,000 a float32 angle is off by up to 0.004 radians. Apple's
    GPUs have no float64 and use float32.
    """
    import torch

    wide = torch.float32 if positions.device.type == "mps" else torch.float64
    angles = positions.to(wide)[..., None] * frequencies.to(wide)
    return angles.cos().float(), angles.sin().float()
