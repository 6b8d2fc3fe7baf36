"""FlexAttention's path against the plain softmax: its very code, run without compiling on a CPU."""

from __future__ import annotations

import math

import pytest
import torch
from plain_softmax import (
    HEAD_DIM,
    HEADS,
    SIZES,
    assert_near,
    assert_same,
    both,
    causal_attention,
    inputs,
    plain_attention,
)
from torch import Tensor
from torch.nn.attention import flex_attention as torch_flex

from fope_lab.embeddings import build_embedding
from fope_lab.embeddings.module import PositionEmbedding
from fope_lab.model import Decoder, ModelConfig, flex
from fope_lab.model.block_attention import block_attention
from fope_lab.model.scores import Places
from fope_lab.model.seen import Documents, Seen, packed

RELATIVE = ["alibi", "kerple", "kerple-power"]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture
def on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs flex as it is written; it has a backward pass on a CPU, which it only offers there."""
    monkeypatch.setattr(flex, "_kernel", lambda: torch_flex.flex_attention)
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *inputs: None)


def table_of(embedding: PositionEmbedding, q: Tensor, k: Tensor) -> Tensor:
    """The bias by distance between consecutive positions."""
    length = k.shape[2]
    table = embedding.scores(q, {"k": k}, Places(torch.arange(length), length, True)).table
    assert table is not None
    return table


@pytest.mark.usefixtures("on_a_cpu")
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize(
    ("spec", "kv_heads"),
    [("alibi", 2), ("kerple", 4), ("kerple", 2), ("kerple", 1), ("kerple-power", 2)],
)
@pytest.mark.parametrize("length", [1, 77, 300])
def test_it_is_the_plain_softmax_with_its_gradients(spec: str, kv_heads: int, length: int) -> None:
    embedding = build_embedding(spec, **SIZES).double()
    q, k, v = inputs(length, kv_heads)
    mixed = flex.flex_attention(q, k, v, Seen(length, length), table_of(embedding, q, k))
    expected = plain_attention(q, k, v, None, embedding)
    assert_same(mixed, expected, q, k, v, *embedding.parameters())


@pytest.mark.parametrize("length", [1, 100, 128, 129, 1000, 1024])
def test_the_blocks_are_those_of_the_causal_mask(length: int) -> None:
    ours = flex.causal_blocks(length, torch.device("cpu"))

    def causal(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return query >= key

    theirs = torch_flex.create_block_mask(causal, 1, 1, length, length, device="cpu")
    assert ours.shape == theirs.shape
    assert torch.equal(ours.to_dense(), theirs.to_dense())
    # A block that is seen in full is not masked, so its keys must all come before its queries.
    for block, count in enumerate(ours.full_kv_num_blocks[0, 0].tolist()):
        keys = ours.full_kv_indices[0, 0, block, :count]
        assert (keys < block).all()
    at = torch.arange(length)
    mask = ours.mask_mod(at, at, at[:, None], at[None, :])
    assert torch.equal(mask, torch.ones(length, length, dtype=torch.bool).tril())


@pytest.mark.usefixtures("on_a_cpu")
def test_a_training_reads_the_blocks_that_an_evaluation_made() -> None:
    flex.causal_blocks.cache_clear()
    embedding = build_embedding(
        "alibi", num_heads=HEADS, num_kv_heads=HEADS, head_dim=HEAD_DIM, train_length=8
    )
    q, k, v = inputs(70, HEADS, dtype=torch.float32)
    table = table_of(embedding, q, k)
    with torch.inference_mode():
        flex.flex_attention(q, k, v, Seen(70, 70), table)
    mixed = flex.flex_attention(q, k, v, Seen(70, 70), table)
    assert all(
        gradient.isfinite().all() for gradient in torch.autograd.grad(mixed.sum(), (q, k, v))
    )


@needs_gpu
@pytest.mark.parametrize("spec", RELATIVE)
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_compiled_kernel_is_the_plain_softmax(
    spec: str, kv_heads: int, dtype: torch.dtype
) -> None:
    embedding = build_embedding(spec, **SIZES).cuda()
    # Weights of the values and gradients of logits are rounded, and then the results.
    unit = 2**-8 if dtype == torch.bfloat16 else 2**-18
    for length in (77, 300, 1024):
        of = inputs(length, kv_heads, device="cuda", dtype=dtype)
        found = both(*of, torch.arange(length, device="cuda"), embedding)
        assert_near(*found, *of, *embedding.parameters(), unit=3 * unit, atol=1e-4)


@needs_gpu
@pytest.mark.parametrize(("spec", "documents"), [("kerple", False), ("rope", True)])
def test_the_kernel_in_a_compiled_decoder(spec: str, documents: bool) -> None:
    config = ModelConfig(num_layers=2, num_heads=4, head_dim=16, num_kv_heads=2, vocab_size=90)
    model = Decoder(config, spec, train_length=64).cuda().train()
    ids = torch.randint(config.vocab_size, (2, 300), device="cuda")
    options = {"labels": ids.roll(-1, 1)}
    if documents:
        options["documents"] = (torch.arange(300, device="cuda") // 90).expand(2, -1)
    parameters = list(model.parameters())
    expected, found = (
        torch.autograd.grad(one(ids, **options).loss, parameters)
        for one in (model, torch.compile(model))
    )
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-2)


@needs_gpu
def test_a_bias_keeps_its_precision_in_the_kernel() -> None:
    """Keys that make up for the last query's bias exactly: it looks at all of them alike."""
    length = 2048
    embedding = build_embedding("alibi", **SIZES).cuda()
    positions = torch.arange(length, device="cuda")
    bias = embedding.bias(positions[-1:], positions)
    wanted = -bias[:, 0]
    high = wanted.to(torch.bfloat16)
    q = torch.zeros(1, HEADS, length, HEAD_DIM, dtype=torch.bfloat16, device="cuda")
    k = torch.zeros_like(q)
    q[..., :2] = math.sqrt(HEAD_DIM)
    k[..., 0], k[..., 1] = high, wanted - high
    v = torch.randn_like(q)
    mixed = causal_attention(q, k, v, positions, embedding)
    mean = v.double().mean(dim=2)
    torch.testing.assert_close(mixed[:, :, -1].double(), mean, rtol=0.01, atol=0.002)


@needs_gpu
def test_the_kernels_memory_grows_with_the_length() -> None:
    embedding = build_embedding("kerple", head_dim=64, num_heads=8, train_length=512).cuda()

    def peak(length: int) -> int:
        x = torch.randn(1, 8, length, 64, dtype=torch.bfloat16, device="cuda", requires_grad=True)
        positions = torch.arange(length, device="cuda")
        causal_attention(x, x, x, positions, embedding).sum().backward()  # compiles
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        causal_attention(x, x, x, positions, embedding).sum().backward()
        return torch.cuda.max_memory_allocated() - before

    assert peak(16_384) < 5 * peak(4096)


@pytest.mark.parametrize("length", [1, 100, 128, 300, 1000])
def test_the_blocks_of_documents_cover_their_mask(length: int) -> None:
    """Whole documents, and numbers that come again: no pair is dropped, none too many is full."""
    generator = torch.Generator().manual_seed(length)
    starts = (torch.rand(2, length, generator=generator) < 0.02).long().cumsum(1)
    for numbers in (starts, starts % 2, 0 * starts):
        ours = flex.document_blocks(numbers)
        same = numbers[:, :, None] == numbers[:, None, :]
        wanted = same & torch.ones(length, length, dtype=torch.bool).tril()
        at = torch.arange(length)
        row = torch.arange(2)[:, None, None]
        assert torch.equal(ours.mask_mod(row, at, at[:, None], at), wanted)

        full = dense(ours.full_kv_num_blocks, ours.full_kv_indices)
        part = dense(ours.kv_num_blocks, ours.kv_indices)
        assert not (full & part).any()
        assert not (full & ~by_block(wanted, missing=True).all(4).all(2)).any()
        needed = by_block(wanted, missing=False).any(4).any(2)
        assert not (needed & ~(full | part)).any()
        if numbers is starts:  # every document is in one piece: no block is read in vain
            assert torch.equal(full | part, needed)


def by_block(mask: Tensor, missing: bool) -> Tensor:
    """A mask (batch, length, length) as (batch, blocks, queries, blocks, keys)."""
    count = -(-mask.shape[1] // flex.BLOCK)
    more = count * flex.BLOCK - mask.shape[1]
    padded = torch.nn.functional.pad(mask, (0, more, 0, more), value=missing)
    return padded.view(len(mask), count, flex.BLOCK, count, flex.BLOCK)


def dense(counts: Tensor, places: Tensor) -> Tensor:
    """Which blocks of keys each block of queries reads, (batch, blocks, blocks)."""
    found = torch.zeros(places.shape, dtype=torch.bool)
    for index in torch.cartesian_prod(*(torch.arange(size) for size in counts.shape)):
        at = tuple(index.tolist())
        found[at][places[at][: counts[at]].long()] = True
    return found[:, 0]


@pytest.mark.usefixtures("on_a_cpu")
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("kv_heads", [4, 1])
def test_documents_in_the_kernel_are_those_in_blocks(kv_heads: int) -> None:
    numbers = torch.arange(300).expand(2, -1) // torch.tensor([[77], [130]])
    q, k, v = inputs(300, kv_heads)
    kernel = Documents(numbers, kernels={})
    ours = flex.flex_attention(q, k, v, Seen(300, 300, kernel))
    theirs = block_attention(q, k, v, Seen(300, 300, packed(numbers)))
    assert_same(ours, theirs, q, k, v)


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_compiled_kernel_reads_documents_apart(dtype: torch.dtype) -> None:
    unit = 2**-8 if dtype == torch.bfloat16 else 2**-18
    for length in (77, 300, 1024):
        numbers = torch.arange(length, device="cuda").expand(2, -1) // 90
        q, k, v = inputs(length, 2, device="cuda", dtype=dtype)
        kernel = Documents(numbers, kernels={})
        ours = flex.flex_attention(q, k, v, Seen(length, length, kernel))
        seen = Seen(length, length, packed(numbers))
        theirs = block_attention(q.double(), k.double(), v.double(), seen)
        assert_near(ours, theirs, q, k, v, unit=3 * unit, atol=1e-4)
