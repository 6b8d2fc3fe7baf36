"""Causal attention with a position embedding that rotates, biases, or does neither.

Rotations leave attention itself alone, so PyTorch's fused kernels do it. A bias is built and used
for a chunk of queries at a time and built again in the backward pass: memory grows with the length
and not with its square.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fope_lab.embeddings.module import PositionEmbedding
from fope_lab.model.config import ModelConfig
from fope_lab.model.projection import Projection

BIASED_LOGITS = 2**24
"""Most logits, over the batch and heads, that are biased at once: 64 MiB of float32."""


class Attention(nn.Module):
    """Grouped-query self-attention of one layer: (batch, length, width) to the same."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        queries = config.num_heads * config.head_dim
        keys = config.num_kv_heads * config.head_dim
        self.q_proj = Projection(config.hidden_size, queries)
        self.k_proj = Projection(config.hidden_size, keys)
        self.v_proj = Projection(config.hidden_size, keys)
        self.o_proj = Projection(queries, config.hidden_size)

    def forward(
        self,
        hidden: Tensor,
        positions: Tensor,
        embedding: PositionEmbedding,
        tables: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        """`tables` are `embedding.tables(positions)`, which layers may share."""
        split = (-1, self.head_dim)
        q = self.q_proj(hidden).unflatten(-1, split).transpose(1, 2)
        k = self.k_proj(hidden).unflatten(-1, split).transpose(1, 2)
        v = self.v_proj(hidden).unflatten(-1, split).transpose(1, 2)
        q, k = embedding.rotate(q, k, positions, tables)
        mixed = causal_attention(q, k, v, positions, embedding)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


def causal_attention(
    q: Tensor, k: Tensor, v: Tensor, positions: Tensor, embedding: PositionEmbedding
) -> Tensor:
    """softmax(q·kᵀ/√head_dim + bias)·v over earlier tokens: (batch, num_heads, length, head_dim).

    q has num_heads, k and v have num_kv_heads; `positions` is (length,) or (batch, length).
    """
    grouped = q.shape[1] != k.shape[1]
    if not embedding.biases:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
    length = q.shape[2]
    chunk = max(BIASED_LOGITS // (q.shape[0] * q.shape[1] * length), 1)
    if chunk >= length:
        return _biased_chunk(q, k, v, positions, embedding, 0)
    chunks = (
        checkpoint(
            _biased_chunk,
            q[:, :, start : start + chunk],
            k[:, :, : start + chunk],
            v[:, :, : start + chunk],
            positions[..., : start + chunk],
            embedding,
            start,
            use_reentrant=False,
            preserve_rng_state=False,
        )
        for start in range(0, length, chunk)
    )
    return torch.cat(list(chunks), dim=2)


def _biased_chunk(
    q: Tensor, k: Tensor, v: Tensor, positions: Tensor, embedding: PositionEmbedding, start: int
) -> Tensor:
    """Attention of the queries from `start` on to all keys up to each of them."""
    bias = embedding.bias(positions[..., start:], positions)
    assert bias is not None  # only embeddings with a bias come here
    queries, keys = bias.shape[-2:]
    future = torch.ones(queries, keys, dtype=torch.bool, device=bias.device).triu(start + 1)
    # On a CPU the bias stays at least float32 beside narrow queries; other devices' kernels want
    # the queries' dtype. (A float32 mask beside float64 queries is misread without an error.)
    on_cpu = q.device.type == "cpu"
    dtype = torch.promote_types(bias.dtype, q.dtype) if on_cpu else q.dtype
    mask = bias.to(dtype).masked_fill(future, float("-inf"))
    if mask.dim() == 3:
        mask = mask.unsqueeze(0)
    grouped = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=grouped)
