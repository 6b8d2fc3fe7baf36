"""The attention of one layer: projections, whose results a position embedding turns into scores."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from torch import Tensor, nn

from fope_lab.embeddings.module import PositionEmbedding, QueryScaling
from fope_lab.embeddings.scores import Places, Scores
from fope_lab.model.cache import LayerCache
from fope_lab.model.config import BIASED, ModelConfig
from fope_lab.model.layers import QK_NORMS, UninitializedLinear
from fope_lab.model.scores import attend
from fope_lab.model.seen import Documents, Seen


class Attention(nn.Module):
    """Grouped-query self-attention of one layer, with one position embedding."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        queries = config.num_heads * config.head_dim
        keys = config.num_kv_heads * config.head_dim
        width, bias = config.hidden_size, config.biases in BIASED["qkv"]
        self.q_proj = UninitializedLinear(width, queries, bias=bias)
        self.k_proj = UninitializedLinear(width, keys, bias=bias)
        self.v_proj = UninitializedLinear(width, keys, bias=bias)
        self.o_proj = UninitializedLinear(queries, width, bias=config.biases in BIASED["o_proj"])
        self.dropout = config.dropout
        self.q_norm = QK_NORMS[config.qk_norm](config.num_heads, config)
        self.k_norm = QK_NORMS[config.qk_norm](config.num_kv_heads, config)
        self.factor = math.sqrt(config.head_dim / (config.score_size or config.head_dim))
        self.cap = config.attention_cap

    def forward(
        self,
        hidden: Tensor,
        position: PositionEmbedding,
        at: Places,
        documents: Documents | None = None,
        window: int | None = None,
        scale: QueryScaling | None = None,
        cache: LayerCache | None = None,
        last: int | None = None,
    ) -> Tensor:
        """Attend from new tokens (batch, length, width) to all tokens; returns the same shape.

        `at` are the `places` of all tokens, including those in the cache, by the embedding
        `position`, and `documents` are those of all tokens. With a `window`, a token attends to so
        many tokens at most, the last of which it is itself. `scale` multiplies queries. With `last`
        only so many of the last tokens attend, and the result is (batch, last, width).
        """
        split = (-1, self.head_dim)
        queries = hidden if last is None else hidden[:, -last:]
        q = self.q_norm(self.q_proj(queries)).unflatten(-1, split).transpose(1, 2)
        k = self.k_norm(self.k_proj(hidden)).unflatten(-1, split).transpose(1, 2)
        v = self.v_proj(hidden).unflatten(-1, split).transpose(1, 2)
        kept = {"v": v, **position.streams(hidden, q, k, at)}
        if cache is not None:
            kept = cache.append(kept, at.positions.shape[-1])
            at = at.last(kept["v"].shape[2])
        seen = Seen.of(q.shape[2], kept["v"].shape[2], documents, window)
        scores = self.scores(position, q, kept, at, seen, scale)
        mixed = attend(scores, kept["v"], seen, self.dropout if self.training else 0.0)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))

    def scores(
        self,
        position: PositionEmbedding,
        q: Tensor,
        kept: Mapping[str, Tensor],
        at: Places,
        seen: Seen,
        scale: QueryScaling | None,
    ) -> Scores:
        """The scores of queries before rotation and of what is kept of each token."""
        if scale is not None:
            q = scale(q, seen.counts(q.device))
        if self.factor != 1:
            q = q * self.factor
        scores = position.scores(q, kept, at)
        return scores if self.cap is None else dataclasses.replace(scores, cap=self.cap)
