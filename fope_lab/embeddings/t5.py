"""T5's bias: distances fall into buckets, and each head learns a number for each bucket.

Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
arXiv 1910.10683, §2.1, and the released code for the sizes of the buckets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fope_lab.config.annotations import Doc, Interval
from fope_lab.embeddings.base import RelativeBias, Shape, Tensors

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class T5(RelativeBias, name="t5", source="Raffel et al., arXiv 1910.10683, §2.1"):
    """The bias is a learned number for each head and bucket; buckets widen logarithmically."""

    num_buckets: Annotated[int, Interval(ge=2), Doc("Half of these hold one distance each.")] = 32
    max_distance: Annotated[
        int, Interval(ge=2), Doc("The distance in tokens from which all share a bucket.")
    ] = 128
    shared_layers: Annotated[bool, Doc("Whether all layers share the numbers.")] = True

    def __post_init__(self) -> None:
        if self.max_distance <= self.num_buckets // 2:
            raise ValueError(f"max_distance {self.max_distance} is within half of num_buckets")

    @property
    def per_layer(self) -> bool:
        """Whether each layer has its own numbers."""
        return not self.shared_layers

    def learned_sizes(self, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        """The size (num_buckets, num_heads), from which a plan counts the parameters."""
        return {"by_bucket": (self.num_buckets, shape.num_heads)}

    def tensors(self, shape: Shape) -> Tensors:
        """The initial numbers, all 0: training starts without position."""
        import torch

        size = (self.num_buckets, shape.num_heads)
        return Tensors(learned={"by_bucket": torch.zeros(size, dtype=torch.float32, device="cpu")})

    def of_distance(self, shape: Shape, tensors: Mapping[str, Tensor], distance: Tensor) -> Tensor:
        """The number of each distance's bucket, (…, num_heads, queries, keys)."""
        by_bucket = tensors["by_bucket"].float()
        return by_bucket[self.bucket(distance.squeeze(-3))].movedim(-1, -3)

    def bucket(self, distance: Tensor) -> Tensor:
        """The bucket of each distance: one for each up to half of them, then logarithmic."""
        near = self.num_buckets // 2
        share = (distance.clamp(min=near) / near).log() / math.log(self.max_distance / near)
        far = near + (share * (self.num_buckets - near)).long()
        return distance.where(distance < near, far.clamp(max=self.num_buckets - 1))
