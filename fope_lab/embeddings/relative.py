"""Biases that depend on the distance between query and key alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from fope_lab.embeddings.base import Embedding, Shape

if TYPE_CHECKING:
    from torch import Tensor


class RelativeBias(Embedding):
    """A bias b_h(|i − j|): a subclass gives `of_distance`.

    Attention can then read it from a table of (num_heads, length) and never needs the bias of all
    pairs of tokens.
    """

    biases: ClassVar[bool] = True

    def of_distance(self, shape: Shape, tensors: Mapping[str, Tensor], distance: Tensor) -> Tensor:
        """The bias at distances ≥ 0 in tokens, (…, 1, queries, keys): float32, with num_heads for
        the 1."""
        raise NotImplementedError

    def bias(
        self,
        shape: Shape,
        tensors: Mapping[str, Tensor],
        query_positions: Tensor,
        key_positions: Tensor,
    ) -> Tensor:
        """b_h(|i − j|), float32 (…, num_heads, queries, keys)."""
        distance = (query_positions[..., :, None] - key_positions[..., None, :]).abs()
        return self.of_distance(shape, tensors, distance[..., None, :, :])
