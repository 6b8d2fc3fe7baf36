"""Attention paths against the plain softmax, values and gradients; flex has a file of its own."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

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
    gradients,
    inputs,
    plain_attention,
)
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fope_lab.embeddings import Shape, build_embedding
from fope_lab.embeddings import scores as of_embeddings
from fope_lab.embeddings.base import Embedding, Tensors
from fope_lab.embeddings.module import PositionEmbedding
from fope_lab.model import block_attention
from fope_lab.model import scores as attention
from fope_lab.model.scores import consecutive
from fope_lab.model.seen import Documents

LENGTH = 77  # three chunks, the last of them smaller
BIASES = ["alibi", "kerple", "kerple-power", "fire"]
COUNT = torch.arange(LENGTH)
POSITIONS = {
    "from 0": COUNT,
    "from 1000": COUNT + 1000,
    "with gaps": 3 * COUNT + 2,
    "of each sequence": torch.stack([COUNT, COUNT + 5]),
    "of each sequence, with gaps": torch.stack([COUNT, 3 * COUNT + 5]),
}


def build(spec: Any) -> PositionEmbedding:
    """What it learns is float64, so that gradients can be compared closely."""
    return build_embedding(spec, **SIZES).double()


@pytest.mark.parametrize("spec", ["nope", "rope", *BIASES])
@pytest.mark.parametrize(
    ("kv_heads", "place", "queries"),
    [
        *itertools.product([2], POSITIONS, [LENGTH, 40, 1]),
        *itertools.product([4, 1], ["from 0", "with gaps"], [40]),
    ],
)
def test_it_is_the_plain_softmax_with_its_gradients(
    spec: Any, kv_heads: int, place: str, queries: int
) -> None:
    """Of all tokens, and of documents; those of the second row take turns."""
    embedding, of = build(spec), inputs(LENGTH, kv_heads, queries)
    for documents in (None, torch.stack([COUNT // 33, (COUNT % 7 > 2).long()])):
        found = both(*of, POSITIONS[place], embedding, documents)
        assert_same(*found, *of, *embedding.parameters())


@pytest.mark.parametrize("window", [1, 5, 32, 98])
@pytest.mark.parametrize("spec", ["nope", *BIASES])
@pytest.mark.parametrize("queries", [LENGTH, 40, 1])
def test_a_window_is_a_mask(spec: str, window: int, queries: int) -> None:
    """Of all tokens, and of documents that take turns."""
    embedding, of = build(spec), inputs(LENGTH, 2, queries)
    for documents in (None, torch.stack([COUNT // 33, (COUNT % 7 > 2).long()])):
        for place in ("from 0", "with gaps"):
            found = both(*of, POSITIONS[place], embedding, documents, window)
            assert_same(*found, *of, *embedding.parameters())


@pytest.mark.parametrize("spec", ["alibi", "kerple", "fire"])
@pytest.mark.parametrize(
    ("queries", "pairs"), [(1, 10**6), (1000, 1), (5, 200), (1000, 200), (1000, 10**6)]
)
@pytest.mark.parametrize("place", ["from 0", "with gaps"])
def test_the_size_of_a_chunk_changes_nothing(
    spec: str, queries: int, pairs: int, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_attention, "BIASED_QUERIES", queries)
    monkeypatch.setattr(of_embeddings, "CPU_PAIRS", pairs)
    embedding, of = build(spec), inputs(LENGTH)
    assert_same(*both(*of, POSITIONS[place], embedding), *of, *embedding.parameters())


@pytest.mark.parametrize("spec", ["nope", *BIASES])
@pytest.mark.parametrize("place", ["from 0", "with gaps"])
@pytest.mark.parametrize("autocast", [False, True])
def test_narrow_inputs_lose_no_more_than_their_own_rounding(
    spec: str, place: str, autocast: bool
) -> None:
    """Inputs are bfloat16 numbers, so only results are rounded: by up to 2⁻⁸ of themselves."""
    embedding, positions = build_embedding(spec, **SIZES), POSITIONS[place]
    q, k, v = inputs(LENGTH, 2, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        mixed = causal_attention(q, k, v, positions, embedding)
    assert mixed.dtype == torch.bfloat16
    expected = plain_attention(q, k, v, positions, embedding)
    unit = 2**-8
    # PyTorch's own kernel, for what has no bias, rounds the weights of the values too.
    roundings = 1 if embedding.biases else 2
    atol = (roundings - 1) * unit * v.abs().max().item() + 1e-5
    torch.testing.assert_close(mixed.double(), expected, rtol=unit, atol=atol)
    # (FIRE's last bias moves all logits of a head alike: its gradient is 0.)
    of = (q, k, v, *embedding.parameters())
    assert_near(mixed, expected, *of, unit=roundings * unit, atol=1e-4)


@pytest.mark.parametrize("spec", BIASES)
def test_float32_is_right_to_float32(spec: str) -> None:
    embedding, of = build_embedding(spec, **SIZES), inputs(LENGTH, 2, dtype=torch.float32)
    of += embedding.parameters()
    assert_same(*both(*of[:3], COUNT, embedding), *of, values=1e-5, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("spec", ["kerple", "kerple-power", "fire"])
@pytest.mark.parametrize("place", ["from 0", "with gaps"])
def test_a_bias_learned_in_bfloat16_loses_no_more_than_its_own_rounding(
    spec: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums over chunks are not rounded on the way."""
    monkeypatch.setattr(block_attention, "BIASED_QUERIES", 2)
    embedding = build_embedding(spec, **SIZES).bfloat16()
    q, k, v = inputs(LENGTH, 2, dtype=torch.bfloat16)
    learned = [*embedding.parameters()]
    ours, theirs = (
        gradients(path(q, k, v, POSITIONS[place], embedding), *learned)
        for path in (causal_attention, plain_attention)
    )
    for our, their in zip(ours, theirs, strict=True):
        assert our.dtype == torch.bfloat16
        assert (our - their).norm() <= 2**-8 * their.norm() + 1e-4


@pytest.mark.parametrize("step", [1, 29])
def test_a_bias_keeps_its_precision_with_bfloat16_queries(step: int) -> None:
    """Keys that make up for the last query's bias exactly: it looks at all of them alike.

    A bias rounded to bfloat16 would be off by up to 1, and the weights by a factor of e.
    """
    embedding = build_embedding("alibi", **SIZES)
    positions = step * torch.arange(29 * LENGTH // step) + 3
    bias = embedding.bias(positions[-1:], positions)
    wanted = -bias[:, 0]
    high = wanted.to(torch.bfloat16)
    low = wanted - high
    assert low.abs().max() > 0.4
    assert torch.equal(low.to(torch.bfloat16).float(), low)
    q = torch.zeros(1, HEADS, len(positions), HEAD_DIM, dtype=torch.bfloat16)
    k = torch.zeros_like(q)
    q[..., :2] = math.sqrt(HEAD_DIM)
    k[..., 0], k[..., 1] = high, low
    v = torch.randn_like(q)
    mixed = causal_attention(q, k, v, positions, embedding)
    mean = v.double().mean(dim=2)
    torch.testing.assert_close(mixed[:, :, -1].double(), mean, rtol=0.01, atol=0.002)


def test_what_is_frozen_gets_no_gradient() -> None:
    embedding = build("fire")
    embedding.c.requires_grad_(False)
    q, k, v = inputs(LENGTH)
    learned = [parameter for parameter in embedding.parameters() if parameter.requires_grad]
    assert_same(*both(q, k, v, COUNT, embedding), *learned)
    mixed = causal_attention(
        q.detach(), k.detach(), v.detach(), COUNT, embedding.requires_grad_(False)
    )
    assert not mixed.requires_grad


@dataclass(frozen=True, kw_only=True)
class Unused(Embedding):
    """Learns two numbers, of which its bias needs `slope` alone, or none."""

    biases: ClassVar[bool] = True
    fixed: bool = False

    def tensors(self, shape: Shape) -> Tensors:
        return Tensors(learned={name: torch.full((1,), 0.1) for name in ("other", "slope")})

    def bias(
        self,
        shape: Shape,
        tensors: Mapping[str, Tensor],
        query_positions: Tensor,
        key_positions: Tensor,
    ) -> Tensor:
        slope = torch.full((1,), 0.1) if self.fixed else tensors["slope"]
        distance = query_positions[..., :, None] - key_positions[..., None, :]
        return (-slope * distance)[..., None, :, :].expand(shape.num_heads, -1, -1)


@pytest.mark.parametrize("fixed", [False, True])
def test_an_embedding_may_learn_what_its_bias_does_not_need(fixed: bool) -> None:
    shape = Shape(head_dim=HEAD_DIM, num_heads=HEADS, num_kv_heads=HEADS, train_length=64)
    embedding = PositionEmbedding(Unused(fixed=fixed), shape)
    q, k, v = inputs(LENGTH)
    mixed = causal_attention(q, k, v, COUNT, embedding)
    other, slope = gradients(mixed, embedding.other, embedding.slope)
    assert other == 0
    assert (slope == 0) == fixed


class Largest(TorchDispatchMode):
    """Records the most numbers in any tensor made."""

    numbers = 0

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor) and made.untyped_storage().data_ptr() not in {
            one.untyped_storage().data_ptr() for one in args if isinstance(one, Tensor)
        }:
            self.numbers = max(self.numbers, made.numel())
        return made


@pytest.mark.parametrize("spec", BIASES)
@pytest.mark.parametrize("gap", [1, 2])
def test_memory_grows_with_the_length_and_not_with_its_square(spec: str, gap: int) -> None:
    """The largest tensor made forward and backward, at four times the length."""
    embedding = build_embedding(spec, **SIZES)

    def largest(length: int) -> int:
        x = torch.randn(1, HEADS, length, HEAD_DIM, requires_grad=True)
        with Largest() as mode:
            causal_attention(x, x, x, gap * torch.arange(length), embedding).sum().backward()
        return mode.numbers

    assert HEADS * 1024 * 16 <= largest(1024) < 5 * largest(256)


@pytest.mark.parametrize("spec", BIASES)
def test_only_the_inputs_are_kept_for_the_gradient(spec: str) -> None:
    embedding = build(spec)
    q, k, v = inputs(LENGTH)
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        mixed = causal_attention(q, k, v, COUNT, embedding)
    of_length = [numbers for numbers in kept.values() if numbers >= q.numel()]
    assert of_length == [mixed.numel()] * 3


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        (torch.arange(9), True),
        (torch.arange(9) + 4, True),
        (torch.stack([torch.arange(9), torch.arange(9) + 4]), True),
        (torch.tensor([7]), True),
        (2 * torch.arange(9), False),
        (torch.stack([torch.arange(9), 2 * torch.arange(9)]), False),
        (torch.tensor([0, 1, 2, 2]), False),
        (torch.arange(9).flip(0), False),
    ],
)
def test_consecutive_positions_are_known(positions: Tensor, expected: bool) -> None:
    alibi = build_embedding("alibi", **SIZES)
    assert consecutive(positions, alibi) == expected
    with torch.inference_mode():
        assert consecutive(positions.clone(), alibi) == expected
    assert not consecutive(positions, build_embedding("fire", **SIZES)), "no bias of distance alone"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("spec", ["nope", *BIASES])
@pytest.mark.parametrize("place", POSITIONS)
@pytest.mark.parametrize("queries", [LENGTH, 40, 1])
def test_a_gpus_paths_are_the_plain_softmax_too(spec: str, place: str, queries: int) -> None:
    embedding, positions = build_embedding(spec, **SIZES).cuda(), POSITIONS[place].cuda()
    of = inputs(LENGTH, 2, queries, device="cuda", dtype=torch.float32)
    mixed, expected = both(*of, positions, embedding)
    assert_near(mixed, expected, *of, *embedding.parameters(), unit=1e-5, atol=1e-5)


def test_a_cpu_never_imports_the_gpus_kernels() -> None:
    script = """
import sys, torch
from fope_lab.model import Decoder, ModelConfig
config = ModelConfig(num_layers=1, num_heads=2, head_dim=16, vocab_size=9)
tokens = torch.zeros(1, 8, dtype=torch.long)
Decoder(config, "alibi", train_length=8)(tokens).logits.sum().backward()
found = {"torch.nn.attention.flex_attention", "torch._inductor"} & set(sys.modules)
assert not found, found
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("spec", "device", "dtype", "head_dim", "queries", "gap", "path"),
    [
        ("alibi", "cuda", torch.bfloat16, 64, 9, 1, "kernel"),
        ("kerple", "cuda", torch.float32, 16, 9, 1, "kernel"),
        ("kerple", "cuda", torch.float64, 16, 9, 1, "TableBias"),
        ("kerple", "cuda", torch.float32, 8, 9, 1, "TableBias"),
        ("kerple", "cuda", torch.float32, 16, 3, 1, "TableBias"),
        ("kerple", "cuda", torch.float32, 16, 9, 2, "PairBias"),
        ("fire", "cuda", torch.bfloat16, 64, 9, 1, "PairBias"),
        ("fope-fs", "cuda", torch.bfloat16, 64, 9, 1, "fused"),
        ("alibi", "cpu", torch.bfloat16, 64, 9, 1, "TableBias"),
    ],
)
def test_the_path_follows_from_the_device_and_the_bias(
    spec: str,
    device: str,
    dtype: torch.dtype,
    head_dim: int,
    queries: int,
    gap: int,
    path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stub:
        """As much of a tensor as the choice needs, on a device that may not be there."""

        def __init__(self, length: int) -> None:
            self.shape = (1, HEADS, length, head_dim)
            self.device = torch.device(device)
            self.dtype = dtype

    embedding = build_embedding(spec, **{**SIZES, "head_dim": head_dim})
    q: Any = Stub(queries)
    k: Any = Stub(9)
    # Each way to compute attention gives its name in place of the result.
    monkeypatch.setattr(attention, "unbiased_attention", lambda *_: "fused")
    monkeypatch.setattr(attention, "chunked_attention", lambda *given: type(given[3]).__name__)
    monkeypatch.setattr(attention.flex, "flex_attention", lambda *_: "kernel")
    positions = gap * torch.arange(9)
    chosen: Any = causal_attention(q, k, k, positions, embedding)
    assert chosen == path
    documents = Documents.of(torch.zeros(1, 9, dtype=torch.long), embedding)
    chosen = causal_attention(q, k, k, positions, embedding, documents)
    assert chosen == path.replace("kernel", "TableBias")
