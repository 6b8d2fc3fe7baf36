"""Parameters, tokens and FLOPs of a plan against the model and the evaluations themselves."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_files import BASE, changed, load, of

from fope_lab.evaluation.perplexity.losses import WINDOWS
from fope_lab.model.config import ModelConfig
from fope_lab.model.decoder import Decoder
from fope_lab.model.memory import reading_memory, training_memory
from fope_lab.sweep.graph import Stage

SIZES: list[dict[str, Any]] = [
    {"num_layers": 2, "num_heads": 4, "head_dim": 16},
    {"num_layers": 3, "num_heads": 4, "head_dim": 8, "num_kv_heads": 2, "hidden_size": 48},
    {"num_layers": 1, "num_heads": 2, "head_dim": 16, "tie_embeddings": True, "vocab_size": 300},
]


def forward_flops(model: ModelConfig, length: int) -> float:
    """Two FLOPs for every multiplication of every matrix product, one product after the other;
    a position attends to itself and to those before it."""
    queries, keys = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    width, inner = model.hidden_size, model.intermediate_size
    total = 0.0
    for position in range(length):
        for _ in range(model.num_layers):
            total += 2 * width * queries + 2 * 2 * width * keys  # q, k, v
            total += 2 * model.num_heads * model.head_dim * (position + 1)  # scores
            total += 2 * model.num_heads * model.head_dim * (position + 1)  # weighted values
            total += 2 * queries * width  # output
            total += 3 * 2 * width * inner  # gate, up, down
        total += 2 * width * model.vocab_size  # head
    return total


def stage(folder: Path, name: str, changes: dict[str, Any]) -> Stage:
    content = changed(BASE, {f"stages.{path}": value for path, value in changes.items()})
    [found] = of(load(folder, content), name)
    return found


@pytest.mark.parametrize("sizes", SIZES)
def test_parameters_are_those_of_the_model(tmp_path: Path, sizes: dict[str, Any]) -> None:
    found = stage(tmp_path, "pretrain", {"pretrain.model": sizes})
    assert found.model_spec is not None
    with torch.device("meta"):
        model = Decoder(found.model_spec.model, "nope", train_length=64, seed=0)
    assert found.cost.parameters is not None
    assert found.cost.parameters.total == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("sizes", SIZES)
def test_a_training_reads_whole_batches_forward_and_backward(
    tmp_path: Path, sizes: dict[str, Any]
) -> None:
    changes = {"pretrain.model": sizes, "pretrain.train.tokens": 100_001}
    found = stage(tmp_path, "pretrain", changes)
    batches = math.ceil(100_001 / 2048)
    assert found.cost.tokens == batches * 2048
    rows = batches * 2048 // 64
    assert found.spec.model == found.model_spec.model if found.model_spec else False
    assert found.cost.flops == pytest.approx(rows * 3 * forward_flops(found.spec.model, 64))


def test_steps_are_exact_for_large_numbers(tmp_path: Path) -> None:
    changes = {"pretrain.train.tokens": 2**62 + 1, "pretrain.train.batch_tokens": 64}
    assert stage(tmp_path, "pretrain", changes).cost.tokens == 2**62 + 64


@pytest.mark.parametrize("sizes", SIZES)
def test_a_passkey_evaluation_reads_every_trial_once(tmp_path: Path, sizes: dict[str, Any]) -> None:
    changes = {"pretrain.model": sizes, "passkey.lengths": [32, 100], "passkey.trials": 7}
    found = stage(tmp_path, "passkey", changes)
    assert found.model_spec is not None
    assert found.cost.tokens == 7 * 132
    model = found.model_spec.model
    expected = 7 * (forward_flops(model, 32) + forward_flops(model, 100))
    assert found.cost.flops == pytest.approx(expected)


@settings(deadline=None, max_examples=50)
@given(
    lengths=st.lists(st.integers(2, 70), min_size=1, max_size=3, unique=True),
    tokens=st.integers(71, 400),
    stride=st.none() | st.integers(1, 70),
)
def test_a_perplexity_reads_the_windows_that_it_reads(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], tokens: int, stride: int | None
) -> None:
    stride = stride and min(stride, *lengths)
    changes: dict[str, Any] = {
        "pretrain.model": SIZES[1],
        "perplexity.lengths": lengths,
        "perplexity.tokens": tokens,
    }
    if stride:
        changes |= {"perplexity.method": "sliding", "perplexity.stride": stride}
    found = stage(tmp_path_factory.getbasetemp(), "perplexity", changes)
    windows = [
        window.end - window.start
        for length in lengths
        for window in WINDOWS["sliding" if stride else "chunked"](tokens, length, stride)
    ]
    assert found.model_spec is not None
    assert found.cost.tokens == sum(windows)
    expected = sum(forward_flops(found.model_spec.model, length) for length in windows)
    assert found.cost.flops == pytest.approx(expected)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"batch": 32}),
        ({"train.batch_tokens": 2048, "train.micro_batch_tokens": 512}, {"micro_batches": 4}),
        ({"train.micro_batch_tokens": 1536}, {"batch": 24, "micro_batches": 2}),
        ({"train.micro_batch_tokens": 8192}, {"batch": 32}),
        ({"train.precision": "bfloat16"}, {"batch": 32, "precision": "bfloat16"}),
        ({"train.gradient_checkpointing": True}, {"batch": 32, "gradient_checkpointing": True}),
        ({"resources.workers": 2}, {"batch": 16}),
        ({"resources.workers": 2, "resources.strategy": "fsdp"}, {"batch": 16, "shards": 2}),
        ({"embedding": "kerple"}, {"batch": 32, "learned": 8}),
    ],
)
def test_memory_is_that_of_a_workers_micro_batch(
    tmp_path: Path, changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = stage(tmp_path, "pretrain", {f"pretrain.{path}": v for path, v in changes.items()})
    assert found.model_spec is not None
    sizes = {"batch": 8, "length": 64, **expected}
    assert found.cost.memory == training_memory(found.model_spec.model, **sizes).peak


def test_memory_of_an_evaluation_is_that_of_the_length_that_needs_most(tmp_path: Path) -> None:
    changes = {"perplexity.lengths": [48, 64], "perplexity.batch_tokens": 128}
    found = stage(tmp_path, "perplexity", changes)
    assert found.model_spec is not None
    model = found.model_spec.model
    assert found.cost.memory == reading_memory(model, batch=2, length=64).peak
    passkey = stage(tmp_path, "passkey", {"passkey.lengths": [32, 100]})
    # 16,384 tokens at once: 512 trials of 32.
    assert passkey.cost.memory == reading_memory(model, batch=512, length=32).peak
    long = stage(tmp_path, "perplexity", {"perplexity.lengths": [100_000]})
    assert long.cost.memory == reading_memory(model, batch=1, length=100_000).peak


def test_what_is_not_known_is_null(tmp_path: Path) -> None:
    sweep = load(tmp_path, BASE)
    for name in ("perplexity", "prepare-data"):
        assert {(s.cost.tokens, s.cost.flops) for s in of(sweep, name)} == {(None, None)}
    assert of(sweep, "perplexity")[0].cost.parameters is not None
    assert of(sweep, "prepare-data")[0].cost.parameters is None
