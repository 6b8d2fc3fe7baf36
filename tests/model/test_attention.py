"""Attention paths against the plain softmax, values and gradients."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from fope_lab.embeddings import build_embedding
from fope_lab.embeddings.module import PositionEmbedding
from fope_lab.model import attention
from fope_lab.model.attention import causal_attention

HEADS, HEAD_DIM, LENGTH = 4, 8, 37


def plain_attention(
    q: Tensor, k: Tensor, v: Tensor, positions: Tensor, embedding: PositionEmbedding
) -> Tensor:
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, dim=1) for x in (k, v))
    logits = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    bias = embedding.bias(positions, positions)
    if bias is not None:
        logits = logits + bias
    future = torch.ones(logits.shape[-2:]).triu(1).bool()
    return logits.masked_fill(future, -math.inf).softmax(dim=-1) @ v


def inputs(kv_heads: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(kv_heads)
    return [
        torch.randn(2, heads, LENGTH, HEAD_DIM, dtype=dtype, generator=generator).requires_grad_()
        for heads in (HEADS, kv_heads, kv_heads)
    ]


def build(spec: Any) -> PositionEmbedding:
    return build_embedding(spec, head_dim=HEAD_DIM, num_heads=HEADS, train_length=64)


@pytest.mark.parametrize("spec", ["nope", "rope", "alibi"])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("chunks", [1, 5, LENGTH])
@pytest.mark.parametrize("batched", [False, True])
def test_it_is_the_plain_softmax_with_its_gradients(
    spec: Any, kv_heads: int, chunks: int, batched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = math.ceil(LENGTH / chunks)
    monkeypatch.setattr(attention, "BIASED_LOGITS", 2 * HEADS * LENGTH * queries)
    embedding = build(spec)
    positions = torch.arange(LENGTH)
    if batched:
        positions = torch.stack([positions, 3 * positions + 5])
    q, k, v = inputs(kv_heads)
    mixed = causal_attention(q, k, v, positions, embedding)
    expected = plain_attention(q, k, v, positions, embedding)
    torch.testing.assert_close(mixed, expected, rtol=0, atol=1e-6)
    weight = torch.randn_like(mixed)
    ours = torch.autograd.grad((mixed * weight).sum(), (q, k, v))
    theirs = torch.autograd.grad((expected * weight).sum(), (q, k, v))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("chunks", [1, 5])
def test_a_learned_bias_gets_its_gradient(chunks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "BIASED_LOGITS", 2 * HEADS * LENGTH * math.ceil(LENGTH / chunks))
    embedding = build("alibi")
    embedding.slopes = torch.nn.Parameter(embedding._buffers.pop("slopes"))
    positions = torch.arange(LENGTH)
    q, k, v = inputs(HEADS)
    weight = torch.randn_like(q)
    grads = [
        torch.autograd.grad((path(q, k, v, positions, embedding) * weight).sum(), embedding.slopes)
        for path in (causal_attention, plain_attention)
    ]
    assert grads[0][0].abs().min() > 0
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-5, atol=1e-5)


def test_a_bias_keeps_its_precision_with_bfloat16_queries() -> None:
    """Keys that make up for the last query's bias exactly: it looks at all of them alike.

    A bias rounded to bfloat16 would be off by up to 1, and the weights by a factor of e.
    """
    head_dim = 16  # its root is exact
    embedding = build_embedding("alibi", head_dim=head_dim, num_heads=HEADS, train_length=64)
    positions = 29 * torch.arange(LENGTH) + 3
    bias = embedding.bias(positions[-1:], positions)
    assert bias is not None
    wanted = -bias[:, 0]
    high = wanted.to(torch.bfloat16)
    low = wanted - high
    assert low.abs().max() > 0.4
    assert torch.equal(low.to(torch.bfloat16).float(), low)
    q = torch.zeros(1, HEADS, LENGTH, head_dim, dtype=torch.bfloat16)
    k = torch.zeros_like(q)
    q[..., :2] = math.sqrt(head_dim)
    k[..., 0], k[..., 1] = high, low
    v = torch.randn_like(q)
    mixed = causal_attention(q, k, v, positions, embedding)
    assert mixed.dtype == torch.bfloat16
    mean = v.double().mean(dim=2)
    torch.testing.assert_close(mixed[:, :, -1].double(), mean, rtol=0.01, atol=0.002)


def test_the_memory_of_a_bias_does_not_grow_with_the_square_of_the_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What autograd keeps for the backward pass, in numbers, at four times the length."""
    monkeypatch.setattr(attention, "BIASED_LOGITS", HEADS * 64 * 64)
    embedding = build("alibi")

    def kept(length: int) -> int:
        storages: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
            return tensor

        x = torch.randn(1, HEADS, length, HEAD_DIM, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            mixed = causal_attention(x, x, x, torch.arange(length), embedding)
        mixed.sum().backward()
        return sum(storages.values())

    assert kept(1024) < 5 * kept(256)
