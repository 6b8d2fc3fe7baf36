"""Biases that depend only on the distance between query and key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from fope_lab.embeddings.base import Embedding, Shape

if TYPE_CHECKING:
    from torch import Tensor


class RelativeBias(Embedding):
    """A bias b_h(|i − j|) of head h, which a subclass gives by `of_distance`.

    Attention reads it from a table (num_heads, length) and never needs the bias of all pairs of
    tokens.
    """

    biases: ClassVar[bool] = True

    def of_distance(self, shape: Shape, tensors: Mapping[str, Tensor], distance: Tensor) -> Tensor:
        """The bias at distances of at least 0 tokens.

        Distances are (…, 1, queries, keys), the result is float32 (…, num_heads, queries, keys).
        """
        raise NotImplementedError

    def bias(
        self,
        shape: Shape,
        tensors: Mapping[str, Tensor],
        query_positions: Tensor,
        key_positions: Tensor,
    ) -> Tensor:
        """The bias b_h(|i − j|), float32 (…, num_heads, queries, keys)."""
        distance = (query_positions[..., :, None] - key_positions[..., None, :]).abs()
        return self.of_distance(shape, tensors, distance[..., None, :, :])
