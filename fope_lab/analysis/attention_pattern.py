"""Attention weights between all tokens of a text: softmax(q·kᵀ/√head_dim + bias).

Fused attention never materialises these weights. This module computes them for one layer at a time
from the layer's actual queries and keys, for every position embedding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fope_lab.analysis.activations import embedding_of, record

if TYPE_CHECKING:
    from torch import Tensor

    from fope_lab.embeddings.module import PositionEmbedding
    from fope_lab.model.decoder import Decoder


def attention_logits(
    embedding: PositionEmbedding, q: Tensor, k: Tensor, positions: Tensor
) -> Tensor:
    """Return the attention logits between all pairs of tokens, without a causal mask:
    (batch, num_heads, length, length).

    q (batch, num_heads, length, head_dim) and k (batch, num_kv_heads, length, head_dim) are not yet
    rotated; positions are (length,). The result is float32 or wider, whatever the model's dtype.
    """
    import torch

    from fope_lab.model.chunked_attention import PairBias

    q, k = embedding.rotate(q, k, positions)
    wide = torch.promote_types(q.dtype, torch.float32)
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    logits = q.to(wide) @ k.to(wide).mT / math.sqrt(q.shape[-1])
    if embedding.biases:
        bias = PairBias(embedding, positions)  # computes a bounded number of pairs at once
        logits += bias.rows(bias.learned, 0, positions.shape[-1])
    return logits


def attention_weights(
    embedding: PositionEmbedding, q: Tensor, k: Tensor, positions: Tensor
) -> Tensor:
    """Return causal attention weights (batch, num_heads, length, length): rows sum to 1, and the
    weights above the diagonal are 0. The arguments are those of `attention_logits`."""
    import torch

    logits = attention_logits(embedding, q, k, positions)
    later = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).triu(1)
    return logits.masked_fill_(later, -math.inf).softmax(dim=-1)


def attention_patterns(model: Decoder, tokens: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield, for each layer, its index and its attention weights (batch, num_heads, length, length)
    on tokens (batch, length), which are on the model's device.

    The weights are computed when the iterator reaches the layer. They take a small multiple of 4
    bytes per pair of tokens and head.
    """
    import torch

    positions = embedding_of(model, 0).positions(tokens.shape[1], device=tokens.device)
    for layer, q, k in record(model, tokens, positions):
        with torch.inference_mode():
            yield layer, attention_weights(embedding_of(model, layer), q, k, positions)
