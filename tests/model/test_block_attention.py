"""Attention in blocks of queries against the plain softmax: values, gradients, what it keeps."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_softmax import (
    HEAD_DIM,
    HEADS,
    NOPE,
    SIZES,
    assert_same,
    both,
    causal_attention,
    inputs,
    plain_attention,
    plain_weights,
)
from torch import Tensor

from fope_lab.embeddings import build_embedding
from fope_lab.model import block_attention
from fope_lab.model import scores as attention
from fope_lab.model.block_attention import QUERIES
from fope_lab.model.scores import BLOCKS_TO, quicker_in_blocks
from fope_lab.model.seen import Documents, Seen, packed


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize(
    ("length", "queries"), [(1, 1), (QUERIES, QUERIES), (2 * QUERIES + 9, 2 * QUERIES + 9), (99, 7)]
)
def test_it_is_the_plain_softmax_with_its_gradients(
    kv_heads: int, length: int, queries: int
) -> None:
    of = inputs(length, kv_heads, queries)
    mixed = block_attention.block_attention(*of, Seen(queries, length))
    assert_same(mixed, plain_attention(*of), *of)


@given(
    rows=st.lists(st.lists(st.integers(-3, 3), min_size=23, max_size=23), min_size=1, max_size=3),
    queries=st.integers(1, 23),
    size=st.integers(1, 30),
)
@settings(max_examples=60, deadline=None)
def test_documents_are_the_plain_softmax_of_each_whatever_their_order(
    rows: list[list[int]], queries: int, size: int
) -> None:
    numbers = torch.tensor(rows)
    of = inputs(23, 2, queries, len(rows))
    before, block_attention.QUERIES = block_attention.QUERIES, size
    try:
        assert_same(*both(*of, torch.arange(23), NOPE, numbers), *of)
    finally:
        block_attention.QUERIES = before


@given(rows=st.lists(st.lists(st.integers(0, 3), min_size=9, max_size=9), min_size=1, max_size=3))
def test_a_block_starts_with_the_first_of_its_documents(rows: list[list[int]]) -> None:
    expected = [min(row.index(row[place]) for row in rows) for place in range(9)]
    assert packed(torch.tensor(rows)).first.tolist() == expected  # type: ignore[union-attr]


def test_dropout_sets_weights_to_0_and_divides_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_attention, "QUERIES", 5)
    rows, length, share = 100, HEAD_DIM, 0.3
    q, k, _ = inputs(length, rows=rows)
    # With these values the results are the weights.
    v = torch.eye(length, dtype=torch.float64).expand(rows, HEADS, -1, -1).contiguous()
    numbers = torch.arange(length).expand(rows, -1) // 9
    torch.manual_seed(0)
    seen = Seen(length, length, packed(numbers))
    used = block_attention.block_attention(q, k, v, seen, share)
    weights = plain_weights(q, k, None, NOPE, numbers)
    kept = used > 0
    torch.testing.assert_close(used[kept], weights[kept] / (1 - share))
    assert kept.sum() / (weights > 0).sum() == pytest.approx(1 - share, abs=0.02)


def test_dropout_has_the_gradient_of_what_it_kept() -> None:
    q, k, v = inputs(7, 2, rows=1)
    q, k, v = q[:, :2, :, :3], k[:, :1, :, :3], v[:, :1, :, :3]

    def dropping(*given: Tensor) -> Tensor:
        torch.manual_seed(3)
        return block_attention.block_attention(*given, Seen(7, 7), dropout=0.5)

    assert not torch.equal(dropping(q, k, v), plain_attention(q, k, v))
    assert torch.autograd.gradcheck(dropping, (q, k, v))


def test_bfloat16_rounds_about_as_much_as_the_plain_way_of_transformers() -> None:
    """Errors of the results and gradients beside those of eager attention in bfloat16.

    The gradient of softmax is that of the rounded weights, which adds a little.
    """
    exact = inputs(3 * QUERIES)
    narrow = [x.detach().bfloat16().requires_grad_() for x in exact]
    exact = [x.detach().double().requires_grad_() for x in narrow]

    def eager(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        length = q.shape[2]
        logits = q @ k.mT / math.sqrt(HEAD_DIM)
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = logits.masked_fill(future, -math.inf).softmax(dim=-1, dtype=torch.float32)
        return weights.to(q.dtype) @ v

    def results(mixed: Tensor, given: list[Tensor]) -> list[Tensor]:
        grads = torch.autograd.grad(mixed.sin().sum(), given)
        return [one.detach().double() for one in (mixed, *grads)]

    right = results(plain_attention(*exact), exact)
    seen = Seen(3 * QUERIES, 3 * QUERIES)
    ours = results(block_attention.block_attention(*narrow, seen), narrow)
    theirs = results(eager(*narrow), narrow)
    for one, other, expected in zip(ours, theirs, right, strict=True):
        assert (one - expected).norm() < 1.25 * (other - expected).norm()


@pytest.mark.parametrize(
    ("dtype", "queries", "keys", "dropout", "blocks"),
    [
        (torch.bfloat16, 64, 64, 0.0, True),
        (torch.bfloat16, BLOCKS_TO, BLOCKS_TO, 0.0, True),
        (torch.bfloat16, BLOCKS_TO + 1, BLOCKS_TO + 1, 0.0, False),
        (torch.bfloat16, 1, 64, 0.0, False),
        (torch.bfloat16, 64, 64, 0.1, False),
        (torch.float32, 64, 64, 0.0, False),
    ],
)
def test_the_path_follows_from_dtype_and_length(
    dtype: torch.dtype,
    queries: int,
    keys: int,
    dropout: float,
    blocks: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    q, k = (torch.zeros(1, HEADS, tokens, HEAD_DIM, dtype=dtype) for tokens in (queries, keys))
    assert quicker_in_blocks(q, k, dropout) == blocks
    assert not quicker_in_blocks(q.to("meta"), k.to("meta"), dropout)
    called = []
    monkeypatch.setattr(attention, "block_attention", lambda *_: called.append("blocks") or q)
    fused = F.scaled_dot_product_attention
    monkeypatch.setattr(
        F, "scaled_dot_product_attention", lambda *a, **o: called.append("fused") or fused(*a, **o)
    )
    causal_attention(q, k, k, torch.arange(keys), NOPE, dropout=dropout)
    assert called == ["blocks" if blocks else "fused"]


@pytest.mark.parametrize("spec", ["nope", "alibi", "fire"])
@pytest.mark.parametrize("packs", [False, True])
def test_queries_and_keys_that_a_norm_left_wider_are_read_as_the_values_are(
    spec: str, packs: bool
) -> None:
    embedding = build_embedding(spec, **SIZES)
    documents = Documents.of(torch.tensor([[0] * 4 + [1] * 5] * 2), embedding) if packs else None
    q, k, v = (x.detach().float() for x in inputs(9, 2))
    narrow = [x.bfloat16().requires_grad_() for x in (q, k, v)]
    wide = [x.detach().float().requires_grad_() for x in narrow[:2]]
    expected = causal_attention(*narrow, torch.arange(9), embedding, documents)
    found = causal_attention(*wide, narrow[2], torch.arange(9), embedding, documents)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, expected)
    gradients = torch.autograd.grad(found.sum(), wide)
    likes = torch.autograd.grad(expected.sum(), narrow[:2])
    for gradient, like in zip(gradients, likes, strict=True):
        assert torch.equal(gradient, like.float())


@pytest.mark.parametrize(("length", "queries"), [(9, 9), (9, 1), (9, 4)])
def test_keys_are_repeated_where_no_kernel_takes_groups(
    length: int, queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "takes_groups", lambda q, masked: False)
    of = inputs(length, 2, queries)
    mixed = attention.unbiased_attention(*of, Seen(queries, length), 0.0)
    assert_same(mixed, plain_attention(*of), *of)


@pytest.mark.parametrize(
    ("device", "dtype", "masked", "takes"),
    [
        ("cpu", torch.float32, True, True),
        ("cuda", torch.float32, False, False),
        ("cuda", torch.bfloat16, False, True),
        ("cuda", torch.bfloat16, True, False),
    ],
)
def test_which_kernels_take_groups(
    device: str, dtype: torch.dtype, masked: bool, takes: bool
) -> None:
    q = SimpleNamespace(device=torch.device(device), dtype=dtype)
    assert attention.takes_groups(q, masked) is takes  # type: ignore[arg-type]
