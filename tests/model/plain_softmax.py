"""Attention as the plain softmax in float64, which each of our paths to it is compared with."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fope_lab.embeddings import build_embedding
from fope_lab.embeddings.module import PositionEmbedding
from fope_lab.model.scores import Places, attend, consecutive
from fope_lab.model.seen import Documents, Seen

HEADS, HEAD_DIM = 4, 16
SIZES = {"head_dim": HEAD_DIM, "num_heads": HEADS, "train_length": 64}
NOPE = build_embedding("nope", **SIZES)


def inputs(
    length: int, kv_heads: int = HEADS, queries: int | None = None, rows: int = 2, **to: Any
) -> list[Tensor]:
    """Queries, keys and values in memory as projections leave them."""
    generator = torch.Generator().manual_seed(length + kv_heads)
    sizes = ((queries or length, HEADS), (length, kv_heads), (length, kv_heads))
    return [
        torch.randn(rows, tokens, heads, HEAD_DIM, dtype=torch.float64, generator=generator)
        .to(**to)
        .transpose(1, 2)
        .requires_grad_()
        for tokens, heads in sizes
    ]


def plain_weights(
    q: Tensor,
    k: Tensor,
    positions: Tensor | None = None,
    embedding: PositionEmbedding = NOPE,
    documents: Tensor | None = None,
    window: int | None = None,
) -> Tensor:
    q, k = q.double(), k.double().repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    logits = q @ k.mT / math.sqrt(q.shape[-1])
    queries, keys = logits.shape[-2:]
    first = keys - queries
    positions = torch.arange(keys, device=q.device) if positions is None else positions
    if (bias := embedding.bias(positions[..., first:], positions)) is not None:
        logits = logits + bias
    hidden = torch.ones(queries, keys, dtype=torch.bool, device=q.device).triu(first + 1)
    if window is not None:
        hidden = hidden | torch.ones_like(hidden).tril(first - window)
    if documents is not None:
        hidden = hidden | (documents[:, first:, None] != documents[:, None, :])[:, None]
    return logits.masked_fill(hidden, -math.inf).softmax(dim=-1)


def causal_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    embedding: PositionEmbedding,
    documents: Documents | None = None,
    window: int | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Of queries and keys that are rotated already, as the layers of a decoder compute it."""
    at = Places(positions, q.shape[2], consecutive(positions, embedding))
    seen = Seen.of(q.shape[2], k.shape[2], documents, window)
    return attend(embedding.scores(q, {"k": k}, at), v, seen, dropout)


def plain_attention(q: Tensor, k: Tensor, v: Tensor, *of: Any) -> Tensor:
    return plain_weights(q, k, *of) @ v.double().repeat_interleave(q.shape[1] // v.shape[1], dim=1)


def gradients(mixed: Tensor, *of: Tensor) -> tuple[Tensor, ...]:
    """Of a weighted sum of the results, with weights that bfloat16 holds exactly."""
    generator = torch.Generator().manual_seed(7)
    weight = torch.randn(mixed.shape, dtype=torch.float64, generator=generator).bfloat16()
    return torch.autograd.grad((mixed * weight.to(mixed.device)).sum(), of)


def assert_same(
    mixed: Tensor,
    expected: Tensor,
    *of: Tensor,
    values: float = 1e-12,
    rtol: float = 1e-9,
    atol: float = 1e-11,
) -> None:
    torch.testing.assert_close(mixed.double(), expected.double(), rtol=0, atol=values)
    ours, theirs = (gradients(one, *of) for one in (mixed, expected))
    torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol)


def assert_near(mixed: Tensor, expected: Tensor, *of: Tensor, unit: float, atol: float) -> None:
    """Values and gradients, each as a whole."""
    ours, theirs = (gradients(one, *of) for one in (mixed, expected))
    for our, their in zip((mixed, *ours), (expected, *theirs), strict=True):
        assert (our - their).norm() < unit * their.norm() + atol


def both(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    embedding: PositionEmbedding = NOPE,
    numbers: Tensor | None = None,
    window: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Our attention and the plain one; documents have these numbers."""
    documents = None if numbers is None else Documents.of(numbers, embedding)
    ours = causal_attention(q, k, v, positions, embedding, documents, window)
    return ours, plain_attention(q, k, v, positions, embedding, numbers, window)
