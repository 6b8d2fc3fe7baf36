"""Parameters, tokens and FLOPs of a plan against the model and the evaluations themselves."""

from __future__ import annotations

import io
import itertools
import math
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from sweep_files import BASE, changed, load, of

from fope_lab.data.mixture import TrainingData
from fope_lab.data.tasks.algorithmic import SUBTASKS
from fope_lab.data.tokenizers.tokenizer import load_tokenizer
from fope_lab.evaluation.perplexity.losses import WINDOWS
from fope_lab.model.config import ModelConfig, flops_per_token
from fope_lab.model.decoder import Decoder
from fope_lab.model.memory import reading_memory, training_memory
from fope_lab.planning.estimate import estimate_plans
from fope_lab.planning.forecast import workload_of
from fope_lab.planning.plan_table import print_plan
from fope_lab.stages.widths import _widths, computed_widths, rows_at_once
from fope_lab.store.root import Store
from fope_lab.sweep import load_sweep, plan
from fope_lab.sweep.graph import Stage
from trainers.step import length_groups

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


@settings(deadline=None, max_examples=25)
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


ROWS, LONGEST, BATCHES = 64, 20, 300


def training(folder: Path, subtask: str = "unique_copy", **changes: Any) -> Stage:
    length = SUBTASKS[subtask].tokens(LONGEST) + 5
    content = yaml.safe_load(f"""
name: grouped
stages:
  pretrain:
    kind: pretrain
    model: {{num_layers: 2, num_heads: 1, head_dim: 16}}
    embedding: rope
    tokenizer: symbols:{subtask}
    data: {{task: algorithmic, subtask: {subtask}, longest: {LONGEST}, length: {length}}}
    train: {{tokens: {10 * ROWS * length}, batch_tokens: {ROWS * length}, learning_rate: 0.001}}
""")
    content["stages"]["pretrain"]["train"] |= changes
    file = folder / "grouped.yaml"
    file.write_text(yaml.safe_dump(content))
    [stage] = load_sweep(file).stages
    return stage


@pytest.mark.parametrize(
    ("subtask", "groups"),
    [*((name, 4) for name in sorted(SUBTASKS)), ("majority", 1), ("majority", 7)],
)
def test_expected_tokens_are_those_of_real_batches(
    tmp_path: Path, subtask: str, groups: int
) -> None:
    stage = training(tmp_path, subtask, length_groups=groups)
    spec: Any = stage.spec
    expected = sum(width * rows for width, rows in computed_widths(spec).items())
    tokenizer = load_tokenizer(f"symbols:{subtask}")
    data = TrainingData(spec.data, {}, tokenizer, batch_size=ROWS, seed=1)
    counts = [
        sum(
            part.input_ids.numel()
            for part in length_groups(data.batch(step), -(-ROWS // spec.train.length_groups))
        )
        for step in range(BATCHES)
    ]
    error = statistics.stdev(counts) / BATCHES**0.5
    if subtask == "addition":  # whose answers are counted at their longest
        assert 0.8 * expected < statistics.mean(counts) < expected
    else:
        assert statistics.mean(counts) == pytest.approx(expected, abs=4 * error + 0.01)
    assert expected < ROWS * spec.data.length


@given(
    shares=st.dictionaries(st.integers(1, 9), st.integers(1, 4), min_size=1, max_size=3),
    rows=st.integers(1, 5),
    size=st.integers(1, 5),
)
def test_widths_are_those_of_all_batches_that_there_are(
    shares: dict[int, int], rows: int, size: int
) -> None:
    total = sum(shares.values())
    expected: Counter[int] = Counter()
    for batch in itertools.product(shares, repeat=rows):
        probability = 1.0
        for end in batch:
            probability *= shares[end] / total
        ordered = sorted(batch, reverse=True)
        for first in range(0, rows, size):
            expected[ordered[first]] += probability * len(ordered[first : first + size])
    found = _widths(tuple((end, shares[end] / total) for end in sorted(shares)), rows, size)
    assert set(found) == set(shares)
    for end in shares:
        assert found[end] == pytest.approx(expected[end], abs=1e-9)


def test_the_plan_counts_what_is_computed(tmp_path: Path) -> None:
    whole, grouped = training(tmp_path), training(tmp_path, length_groups=4)
    spec: Any = grouped.spec
    widths = computed_widths(spec)
    model: Any = grouped.model_spec
    assert (
        grouped.cost.tokens == whole.cost.tokens == workload_of(whole).tokens == spec.train.tokens
    )
    assert grouped.cost.flops == pytest.approx(
        10 * sum(n * width * flops_per_token(model.model, width) for width, n in widths.items())
    )
    work = workload_of(grouped)
    assert work.flops == grouped.cost.flops
    assert work.tokens == round(10 * sum(n * width for width, n in widths.items()))
    assert 0.5 * spec.train.tokens < work.tokens < 0.65 * spec.train.tokens
    assert grouped.cost.flops < 0.65 * (whole.cost.flops or 0)


def test_the_plan_says_that_its_numbers_are_the_most_where_trainings_may_end_early(
    tmp_path: Path,
) -> None:
    may = "1 training may end early, at train.stop_at_accuracy: tokens, FLOPs and time are at most"
    early = {"validate_every": 5, "stop_at_accuracy": 1.0}
    for changes, said in (({}, False), (early, True)):
        stage = training(tmp_path, **changes)
        store = Store(tmp_path / "store")
        planned = plan(load_sweep(tmp_path / "grouped.yaml"), store)
        console = Console(file=(out := io.StringIO()), width=200)
        print_plan(estimate_plans([planned], store), console)
        assert (may in out.getvalue()) is said
    with store.folder(stage.kind, stage.key).begin("test", {}) as attempt:
        attempt.finish({})
    print_plan(
        estimate_plans([plan(planned.sweep, store)], store),
        Console(file=(out := io.StringIO()), width=200),
    )
    assert "may end early" not in out.getvalue()


@pytest.mark.parametrize(("micro", "most"), [(None, 16), (8, 8), (40, 16)])
def test_a_group_is_no_larger_than_a_micro_batch(
    tmp_path: Path, micro: int | None, most: int
) -> None:
    length = training(tmp_path).spec.data.length  # type: ignore[attr-defined]
    changes = {} if micro is None else {"micro_batch_tokens": micro * length}
    stage = training(tmp_path, length_groups=4, **changes)
    spec: Any = stage.spec
    assert rows_at_once(spec) == most


def test_a_source_whose_ends_are_not_known_counts_whole(tmp_path: Path) -> None:
    stage = training(tmp_path, length_groups=4)
    text = yaml.safe_load((tmp_path / "grouped.yaml").read_text())
    section = text["stages"]["pretrain"]
    section |= {"tokenizer": "byte", "data": {"task": "passkey", "length": 64}}
    section["train"] |= {"tokens": 6400, "batch_tokens": 640}
    (tmp_path / "grouped.yaml").write_text(yaml.safe_dump(text))
    [stage] = load_sweep(tmp_path / "grouped.yaml").stages
    assert computed_widths(stage.spec) == {64: pytest.approx(10.0)}  # type: ignore[arg-type]
