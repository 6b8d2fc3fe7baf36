"""How much each token of a text attends to each other one: softmax(q·kᵀ/√head_dim + bias).

Fused attention never holds these weights; here they are made for one layer at a time, from the
queries and keys that it really has, for every position embedding.
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
    """Logits (batch, num_heads, length, length) of each token on all, those to come included.

    q is (batch, num_heads, length, head_dim) and k (batch, num_kv_heads, length, head_dim) before
    rotation; positions are (length,). In float32 or better, whatever the model's dtype.
    """
    import torch

    from fope_lab.model.chunked_attention import PairBias

    q, k = embedding.rotate(q, k, positions)
    wide = torch.promote_types(q.dtype, torch.float32)
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    logits = q.to(wide) @ k.to(wide).mT / math.sqrt(q.shape[-1])
    if embedding.biases:
        bias = PairBias(embedding, positions)  # a bounded number of pairs at once
        logits += bias.rows(bias.learned, 0, positions.shape[-1])
    return logits


def attention_weights(
    embedding: PositionEmbedding, q: Tensor, k: Tensor, positions: Tensor
) -> Tensor:
    """Causal attention (batch, num_heads, length, length): each row sums to 1, and nothing lies
    above the diagonal. For the arguments see `attention_logits`."""
    import torch

    logits = attention_logits(embedding, q, k, positions)
    later = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).triu(1)
    return logits.masked_fill_(later, -math.inf).softmax(dim=-1)


def attention_patterns(model: Decoder, tokens: Tensor) -> Iterator[tuple[int, Tensor]]:
    """For each layer: its index, and its attention weights (batch, num_heads, length, length) when
    the model reads tokens (batch, length) on its device.

    A layer's weights are made when they are asked for. Memory: 4 bytes a pair of tokens and head,
    a few times over.
    """
    import torch

    positions = embedding_of(model, 0).positions(tokens.shape[1], device=tokens.device)
    for layer, q, k in record(model, tokens, positions):
        with torch.inference_mode():
            yield layer, attention_weights(embedding_of(model, layer), q, k, positions)
