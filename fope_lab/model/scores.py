"""Attention from the `Scores` of an embedding, over the tokens that are `Seen`.

Every path of `attend` computes the same sums; device, dtype and length choose the quickest. Memory
grows with the length and not with its square, but for two cases of PyTorch's attention on a CPU:
dropout of weights, and several queries that are fewer than the keys. Without a bias, PyTorch's
fused kernels compute the attention, or `block_attention`, a block of queries at a time.
`chunked_attention` takes any bias anywhere, and `flex` has fused CUDA kernels for a bias of
distance alone and for packed documents.
"""

from __future__ import annotations

import functools
import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fope_lab.embeddings.module import PositionEmbedding
from fope_lab.embeddings.scores import PairBias, Places, Scores
from fope_lab.model import flex
from fope_lab.model.block_attention import TableBias, block_attention, chunked_attention
from fope_lab.model.exact import exact_attention
from fope_lab.model.no_compile import no_compile
from fope_lab.model.seen import Seen

__all__ = ["PairBias", "Places", "Scores", "Seen", "attend", "consecutive"]


def attend(scores: Scores, v: Tensor, seen: Seen, dropout: float = 0.0) -> Tensor:
    """softmax(q·kᵀ/√head_dim + bias)·v over the tokens that each query sees.

    The result has the shape of `scores.q`, (batch, num_heads, queries, head_dim); v is
    (batch, num_kv_heads, keys, head_dim). `dropout` is the share of the weights that are set to 0;
    the others are divided by 1 − dropout.
    """
    exact = (scores.sink, scores.logits, scores.weights, scores.cap)
    if any(each is not None for each in exact):
        return exact_attention(scores, v, seen, dropout)
    if scores.key_bias is not None:
        q, k, wide = _folded(scores, scores.key_bias, v)
        with torch.autocast(v.device.type, enabled=False):  # which would round the bias
            mixed = unbiased_attention(q, k, wide, seen, dropout)
        return mixed[..., : v.shape[-1]].to(v.dtype)
    q, k = scores.q, scores.k
    if q.dtype != v.dtype:  # under autocast, a norm of queries and keys gives float32 on CUDA
        q, k = q.to(v.dtype), k.to(v.dtype)
    if scores.rows is not None:
        return chunked_attention(q, k, v, scores.rows, seen, dropout)
    if scores.table is None:
        return unbiased_attention(q, k, v, seen, dropout)
    if seen.documents is None and not dropout and flex.fits(q, k):
        return flex.flex_attention(q, k, v, seen, scores.table)
    return chunked_attention(q, k, v, TableBias(scores.table), seen, dropout)


FOLDED = 8
"""How many dimensions a bias of keys adds: kernels want a multiple of 8."""


def _folded(scores: Scores, key_bias: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values with more dimensions, whose products have the bias of keys too. In
    16 bits, three dimensions hold the bias: the rounded one, and twice what rounding leaves."""
    if v.device.type == "cpu":  # blocks round logits to 16 bits, of which a large bias leaves none
        v = v.float() if v.dtype.itemsize < 4 else v
    q, k = scores.q.to(v.dtype), scores.k.to(v.dtype)
    groups, width = q.shape[1] // k.shape[1], q.shape[-1] + FOLDED
    scale = math.sqrt(width)  # by which the logits are divided, in place of that of q
    k, v = (x.repeat_interleave(groups, dim=1) for x in (k, v))
    parts, left = list[Tensor](), key_bias * scale  # beside ones, which no dtype rounds
    for _ in range(1 if q.dtype.itemsize > 2 else 3):
        parts.append(left.to(q.dtype))
        left = left - parts[-1].to(left.dtype)
    ones = q.new_ones((*q.shape[:-1], len(parts)))
    q = torch.cat((q * (scale / math.sqrt(q.shape[-1])), ones), dim=-1)
    k = torch.cat((k, torch.stack(parts, dim=-1)), dim=-1)
    rest = (0, width - q.shape[-1])
    return F.pad(q, rest), F.pad(k, rest), F.pad(v, (0, FOLDED))


BLOCKS_TO = 1024
"""The most tokens for which blocks are quicker than PyTorch's kernel on a CPU in bfloat16.

Forward and backward, seconds of `block_attention` over those of `scaled_dot_product_attention`, one
thread of an EPYC with avx512_bf16, 4 heads of 64 (benchmarks/attention.py):

    length       32    64   128   256   512  1024  2048
    bfloat16   0.49  0.45  0.46  0.68  0.62  0.82  1.01
    float32    1.35  1.44  1.24  0.92  0.92  0.99  1.11

Float32 stays with PyTorch's kernel, whose results the trainings that there are have.
"""


def unbiased_attention(q: Tensor, k: Tensor, v: Tensor, seen: Seen, dropout: float) -> Tensor:
    """Attention without a bias by the quickest way; see `attend`."""
    if not seen.is_plain:
        if not dropout and flex.fits(q, k):
            return flex.flex_attention(q, k, v, seen)
        return block_attention(q, k, v, seen, dropout)
    if quicker_in_blocks(q, k, dropout):
        return block_attention(q, k, v, seen)
    grouped = q.shape[1] != k.shape[1]
    if grouped and not takes_groups(q, masked=1 < seen.queries != seen.keys):
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
        grouped = False
    attention = functools.partial(
        F.scaled_dot_product_attention, dropout_p=dropout, enable_gqa=grouped
    )
    return attention(q, k, v, **seen.sdpa(q.device))


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


@no_compile
def consecutive(positions: Tensor, embedding: PositionEmbedding) -> bool:
    """Whether a bias of distance alone can be read from a table: positions grow by one.

    Reading the positions waits for the device, so that a decoder asks once for all layers.
    """
    return embedding.biases_by_distance and bool((positions.diff(dim=-1) == 1).all())
