"""Contextual position encoding: a position is how many tokens a gate has counted.

Golovneva et al., "Contextual Position Encoding", arXiv 2405.18719, Eq. 3 to 5. It has the name of
"Clipped RoPE" in arXiv 2602.05258 (here `clipped`), with which it has nothing to do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from fope_lab.config.annotations import Doc, Interval
from fope_lab.embeddings.base import Embedding, Named, Shape, Tensors

if TYPE_CHECKING:
    from torch import Tensor

    from fope_lab.embeddings.scores import Places, Scores


@dataclass(frozen=True, kw_only=True)
class ContextualPositions(
    Embedding, name="cope-contextual", source="Golovneva et al. (CoPE), arXiv 2405.18719, Eq. 5"
):
    """The position of key j for query i is Σ σ(logit_ik) over the keys k from j to i, and q·e is
    added to the logit, where e is interpolated between the learned vectors of whole positions."""

    place: ClassVar[str] = "hidden"

    shared_layers: ClassVar[bool] = False
    decays: ClassVar[bool] = True

    max_positions: Annotated[
        int, Interval(ge=2, le=2**16), Doc("How many vectors there are; further tokens share one.")
    ] = 64

    def learned_sizes(self, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        return {"by_count": (self.max_positions, shape.head_dim)}

    def products(self, shape: Shape) -> tuple[int, int]:
        return shape.num_heads * shape.head_dim * self.max_positions, 0

    def tensors(self, shape: Shape) -> Tensors:
        """The vectors, all 0: training starts without position."""
        import torch

        return Tensors(learned={"by_count": torch.zeros(self.learned_sizes(shape)["by_count"])})

    def scores(self, shape: Shape, tensors: Named, q: Tensor, kept: Named, at: Places) -> Scores:
        def weights(scores: Scores, logits: Tensor, hidden: Tensor, queries: slice) -> Tensor:
            gates = logits.sigmoid().masked_fill(hidden, 0)
            counted = gates.flip(-1).cumsum(dim=-1).flip(-1).clamp(max=self.max_positions - 1)
            before, after = counted.floor(), counted.ceil()
            share = counted - before
            x, vectors = scores.q[:, :, queries], scores.of["by_count"]
            added = x.to(logits.dtype) @ vectors.to(logits.dtype).mT
            low, high = (added.gather(-1, place.long()) for place in (before, after))
            logits = logits + low * (1 - share) + high * share
            return logits.masked_fill(hidden, -math.inf).softmax(dim=-1)

        plain = super().scores(shape, tensors, q, kept, at)
        return replace(plain, weights=weights, of=tensors)
