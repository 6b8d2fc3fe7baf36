"""Causal attention with a position embedding that rotates, biases, or does neither.

Every path computes the same sums; device, dtype and length choose the quickest (`causal_attention`,
`unbiased_attention`). Memory grows with the length and not with its square, but for two cases of
PyTorch's attention on a CPU: dropout of weights, and several queries that are fewer than the keys.
A rotation changes only the queries and keys, so that PyTorch's fused kernels compute the attention,
or `block_attention`, a block of queries at a time. `chunked_attention` takes any bias anywhere,
and `flex` has fused CUDA kernels for a bias of distance alone and for packed documents.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fope_lab.embeddings.module import CosSin, PositionEmbedding
from fope_lab.model import flex
from fope_lab.model.block_attention import (
    Documents,
    PairBias,
    TableBias,
    block_attention,
    chunked_attention,
)
from fope_lab.model.cache import LayerCache
from fope_lab.model.config import ModelConfig
from fope_lab.model.layers import QK_NORMS, UninitializedLinear
from fope_lab.model.no_compile import no_compile


class Attention(nn.Module):
    """Grouped-query self-attention of one layer, with one position embedding."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        queries = config.num_heads * config.head_dim
        keys = config.num_kv_heads * config.head_dim
        width, bias = config.hidden_size, config.biases
        self.q_proj = UninitializedLinear(width, queries, bias=bias)
        self.k_proj = UninitializedLinear(width, keys, bias=bias)
        self.v_proj = UninitializedLinear(width, keys, bias=bias)
        self.o_proj = UninitializedLinear(queries, width, bias=bias)
        self.dropout = config.dropout
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
        steps: bool | None = None,
        last: int | None = None,
    ) -> Tensor:
        """Attend from new tokens (batch, length, width) to all tokens; returns the same shape.

        `positions` and `documents` are those of all tokens, including those in the cache. `cos_sin`
        is `embedding.cos_sin` of the positions of the new tokens, and `steps` what `consecutive`
        says of the positions. With `last` only so many of the last tokens attend, and the result is
        (batch, last, width).
        """
        split = (-1, self.head_dim)
        queries = hidden if last is None else hidden[:, -last:]
        q = self.q_norm(self.q_proj(queries)).unflatten(-1, split).transpose(1, 2)
        k = self.k_norm(self.k_proj(hidden)).unflatten(-1, split).transpose(1, 2)
        v = self.v_proj(hidden).unflatten(-1, split).transpose(1, 2)
        if cache is None:
            q, k = embedding.rotate(q, k, positions, cos_sin)
        else:
            q, k, v = cache.rotated(q, k, v, positions, embedding, cos_sin)
        dropout = self.dropout if self.training else 0.0
        mixed = causal_attention(q, k, v, positions, embedding, documents, dropout, steps)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


def causal_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    embedding: PositionEmbedding,
    documents: Documents | None = None,
    dropout: float = 0.0,
    steps: bool | None = None,
) -> Tensor:
    """softmax(q·kᵀ/√head_dim + bias)·v over a token and those before it.

    q is (batch, num_heads, queries, head_dim), as is the result; k and v are
    (batch, num_kv_heads, length, head_dim). `positions`, (length,) or (batch, length), and
    `documents` are those of the keys. Fewer queries than keys belong to the last tokens. `dropout`
    is the share of the weights that are set to 0; the others are divided by 1 − dropout. `steps` is
    what `consecutive` says of the positions, if the caller knows.
    """
    if q.dtype != v.dtype:  # under autocast, a norm of queries and keys gives float32 on CUDA
        q, k = q.to(v.dtype), k.to(v.dtype)
    if not embedding.biases:
        return unbiased_attention(q, k, v, documents, dropout)
    if steps is None:
        steps = consecutive(positions, embedding)
    if not steps:
        return chunked_attention(q, k, v, PairBias(embedding, positions), documents, dropout)
    table = distance_table(embedding, positions)
    if documents is None and not dropout and flex.fits(q, k):
        return flex.flex_attention(q, k, v, table)
    return chunked_attention(q, k, v, TableBias(table), documents, dropout)


BLOCKS_TO = 1024
"""The most tokens for which blocks are quicker than PyTorch's kernel on a CPU in bfloat16.

Forward and backward, seconds of `block_attention` over those of `scaled_dot_product_attention`, one
thread of an EPYC with avx512_bf16, 4 heads of 64 (benchmarks/attention.py):

    length       32    64   128   256   512  1024  2048
    bfloat16   0.49  0.45  0.46  0.68  0.62  0.82  1.01
    float32    1.35  1.44  1.24  0.92  0.92  0.99  1.11

Float32 stays with PyTorch's kernel, whose results the trainings that there are have.
"""


def unbiased_attention(
    q: Tensor, k: Tensor, v: Tensor, documents: Documents | None, dropout: float
) -> Tensor:
    """Attention without a bias by the quickest way; see `causal_attention`."""
    queries, keys = q.shape[2], k.shape[2]
    if documents is not None:
        if not dropout and flex.fits(q, k):
            return flex.document_attention(q, k, v, documents.kernel)
        return block_attention(q, k, v, documents, dropout)
    if quicker_in_blocks(q, k, dropout):
        return block_attention(q, k, v)
    grouped = q.shape[1] != k.shape[1]
    if grouped and not takes_groups(q, masked=1 < queries != keys):
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
        grouped = False
    attend = functools.partial(
        F.scaled_dot_product_attention, dropout_p=dropout, enable_gqa=grouped
    )
    if queries == keys:
        return attend(q, k, v, is_causal=True)
    if queries == 1:  # it attends to all keys
        return attend(q, k, v)
    # With `is_causal` the queries would be those of the first tokens.
    seen = torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(keys - queries)
    return attend(q, k, v, attn_mask=seen)


def takes_groups(q: Tensor, masked: bool) -> bool:
    """Whether a fused kernel of PyTorch takes fewer key heads than query heads.

    On CUDA, the one for float32 and for masks does not, and the other one holds all logits.
    """
    narrow = q.dtype in (torch.float16, torch.bfloat16)
    return q.device.type != "cuda" or (narrow and not masked)


def quicker_in_blocks(q: Tensor, k: Tensor, dropout: float) -> bool:
    """Whether blocks are the quicker way for these queries and keys, none of them packed."""
    return (
        q.device.type == "cpu"
        and q.dtype == torch.bfloat16
        and q.shape[2] == k.shape[2] <= BLOCKS_TO
        and not dropout
    )


def distance_table(embedding: PositionEmbedding, positions: Tensor) -> Tensor:
    """The bias at each distance between consecutive positions, float32 (num_heads, length)."""
    distances = torch.arange(positions.shape[-1], device=positions.device)
    bias = embedding.bias(distances[-1:], distances)
    assert bias is not None  # the callers have embeddings with a bias
    return bias[:, 0].flip(-1)


@no_compile
def consecutive(positions: Tensor, embedding: PositionEmbedding) -> bool:
    """Whether a bias of distance alone can be read from a table: positions grow by one.

    Reading the positions waits for the device, so that a decoder asks once for all layers.
    """
    return embedding.biases_by_distance and bool((positions.diff(dim=-1) == 1).all())
