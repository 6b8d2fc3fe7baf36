"""Causal attention with a position embedding that rotates, biases, or does neither.

Rotations leave attention itself alone, so PyTorch's fused kernels do it. For a bias there are two
ways whose memory grows with the length and not with its square: any bias, on any device, a few
queries at a time (`chunked_attention`), and on CUDA a fused kernel for a bias that depends on
distance alone (`flex`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from fope_lab.embeddings.module import CosSin, PositionEmbedding
from fope_lab.embeddings.relative import RelativeBias
from fope_lab.model import flex
from fope_lab.model.cache import LayerCache
from fope_lab.model.chunked_attention import PairBias, TableBias, chunked_attention
from fope_lab.model.config import ModelConfig
from fope_lab.model.no_compile import no_compile
from fope_lab.model.qk_norm import QK_NORMS
from fope_lab.model.uninitialized_linear import UninitializedLinear


class Attention(nn.Module):
    """Grouped-query self-attention of one layer: (batch, length, width) to the same, or to less."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        queries = config.num_heads * config.head_dim
        keys = config.num_kv_heads * config.head_dim
        self.q_proj = UninitializedLinear(config.hidden_size, queries)
        self.k_proj = UninitializedLinear(config.hidden_size, keys)
        self.v_proj = UninitializedLinear(config.hidden_size, keys)
        self.o_proj = UninitializedLinear(queries, config.hidden_size)
        qk_norm = QK_NORMS[config.qk_norm]
        self.q_norm = qk_norm(config.num_heads, config.head_dim, config.norm_eps)
        self.k_norm = qk_norm(config.num_kv_heads, config.head_dim, config.norm_eps)

    def forward(
        self,
        hidden: Tensor,
        positions: Tensor,
        embedding: PositionEmbedding,
        cos_sin: CosSin | None,
        documents: Documents | None = None,
        cache: LayerCache | None = None,
        last: int | None = None,
    ) -> Tensor:
        """`positions` and `documents` are those of all tokens, the cache's included.

        `cos_sin` are `embedding.cos_sin` of the new tokens' positions, which layers may share. Only
        the `last` tokens attend to others, if so many are given: (batch, last, width).
        """
        split = (-1, self.head_dim)
        asking = hidden if last is None else hidden[:, -last:]
        q = self.q_norm(self.q_proj(asking)).unflatten(-1, split).transpose(1, 2)
        k = self.k_norm(self.k_proj(hidden)).unflatten(-1, split).transpose(1, 2)
        v = self.v_proj(hidden).unflatten(-1, split).transpose(1, 2)
        if cache is None:
            q, k = embedding.rotate(q, k, positions, cos_sin)
        else:
            q, k, v = cache.rotated(q, k, v, positions, embedding, cos_sin)
        mixed = causal_attention(q, k, v, positions, embedding, documents)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class Documents(NamedTuple):
    """Which document each token is of: it attends to no other.

    `numbers` are whole numbers (batch, length); `mask` (batch, 1, length, length), whether a token
    attends to another, is for attention without a bias, and made once for all layers.
    """

    numbers: Tensor
    mask: Tensor | None

    @classmethod
    def of(cls, numbers: Tensor, embedding: PositionEmbedding) -> Documents:
        """For attention with this embedding."""
        if embedding.biases:
            return cls(numbers, None)
        same = numbers[:, :, None] == numbers[:, None, :]
        return cls(numbers, same.tril()[:, None])


AttentionPath = Callable[
    [Tensor, Tensor, Tensor, Tensor, PositionEmbedding, Documents | None], Tensor
]
"""A way to do what `causal_attention` does."""


def causal_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    embedding: PositionEmbedding,
    documents: Documents | None = None,
) -> Tensor:
    """softmax(q·kᵀ/√head_dim + bias)·v over earlier tokens: (batch, num_heads, queries, head_dim).

    q has num_heads, k and v (batch, num_kv_heads, length, head_dim); `positions` and `documents`,
    those of the keys, are (length,) or (batch, length). Where there are fewer queries than keys,
    they are those of the last tokens.
    """
    path = _path(q, k, positions, embedding, documents)
    return path(q, k, v, positions, embedding, documents)


def _path(
    q: Tensor,
    k: Tensor,
    positions: Tensor,
    embedding: PositionEmbedding,
    documents: Documents | None,
) -> AttentionPath:
    if not embedding.biases:
        return _unbiased
    if not isinstance(embedding.definition, RelativeBias) or not consecutive(positions):
        return _biased_by_pair
    fits_kernel = (
        q.device.type == "cuda"
        and q.dtype in flex.DTYPES
        and q.shape[3] >= flex.LEAST_HEAD_DIM
        and q.shape[2] == k.shape[2]
        and documents is None
    )
    return _biased_by_kernel if fits_kernel else _biased_by_distance


def _unbiased(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    embedding: PositionEmbedding,
    documents: Documents | None,
) -> Tensor:
    queries, keys = q.shape[2], k.shape[2]
    grouped = q.shape[1] != k.shape[1]
    if documents is not None:
        assert documents.mask is not None
        seen = documents.mask[:, :, keys - queries :]
    elif queries == keys:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
    elif queries == 1:  # it sees all keys
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=grouped)
    else:
        # `is_causal` would take the queries for those of the first tokens.
        seen = torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(keys - queries)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=grouped)


def _biased_by_pair(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    embedding: PositionEmbedding,
    documents: Documents | None,
) -> Tensor:
    return chunked_attention(q, k, v, PairBias(embedding, positions), _numbers(documents))


def _biased_by_distance(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    embedding: PositionEmbedding,
    documents: Documents | None,
) -> Tensor:
    bias = TableBias(distance_table(embedding, positions))
    return chunked_attention(q, k, v, bias, _numbers(documents))


def _biased_by_kernel(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    embedding: PositionEmbedding,
    documents: Documents | None,
) -> Tensor:
    return flex.flex_attention(q, k, v, distance_table(embedding, positions))


def _numbers(documents: Documents | None) -> Tensor | None:
    return None if documents is None else documents.numbers


def distance_table(embedding: PositionEmbedding, positions: Tensor) -> Tensor:
    """The bias at each distance of consecutive positions: float32 (num_heads, length)."""
    distances = torch.arange(positions.shape[-1], device=positions.device)
    bias = embedding.bias(distances[-1:], distances)
    assert bias is not None  # only embeddings with a bias come here
    return bias[:, 0].flip(-1)


_CONSECUTIVE = WeakTensorKeyDictionary()
"""What `consecutive` found for tensors of positions, with their version then."""


@no_compile
def consecutive(positions: Tensor) -> bool:
    """Whether every position is one more than the one before, in every sequence.

    To look is to wait for the device, so it is done once for all layers.
    """
    version = 0 if positions.is_inference() else positions._version
    known = _CONSECUTIVE.get(positions)
    if known is None or known[0] != version:
        known = version, bool((positions.diff(dim=-1) == 1).all())
        _CONSECUTIVE[positions] = known
    return known[1]
