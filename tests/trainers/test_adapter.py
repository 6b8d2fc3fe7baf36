"""Low-rank adapters: what learns, what is kept, and that merging changes nothing."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from real_training import LENGTH, ROWS, SIZES, DiedError, RealStage, prepare, pretraining
from safetensors.torch import load_file
from sections import read_section

from fope_lab.config.problems import ConfigError
from fope_lab.data.mixture import Batch, TrainingData
from fope_lab.model import Decoder, load_model, read_config
from fope_lab.model.adapter import PROJECTIONS, Adapter, projection_sizes
from fope_lab.model.config import parameters
from fope_lab.model.export.folder import export
from fope_lab.model.lora import adapter_of, add_adapter, merge_adapter
from fope_lab.stages.training import Extend
from fope_lab.store.folder import StageFolder
from fope_lab.store.root import Store
from trainers.stage import run

STEPS = 8
ADAPTER: dict[str, Any] = {"rank": 3, "alpha": 6.0, "targets": ["q_proj", "v_proj", "down_proj"]}


def decoder(**changes: Any) -> Decoder:
    return Decoder(dataclasses.replace(SIZES, **changes), {"type": "rotary"}, train_length=LENGTH)


def ids() -> torch.Tensor:
    return torch.randint(0, 256, (2, 30), generator=torch.Generator().manual_seed(2))


def extending(adapter: Any, embedding: Any = None, **settings: Any) -> Extend:
    length = 2 * LENGTH
    train = {"tokens": STEPS * ROWS * length, "batch_tokens": ROWS * length, "log_every": 1}
    section = {
        "kind": "extend",
        "from": "pretrain",
        "data": {"length": length, "corpus": {"files": __file__}},
        "train": train | {"learning_rate": 1e-2, "adapter": adapter} | settings,
    }
    return read_section(Extend, section | ({"embedding": embedding} if embedding else {}))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return prepare(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def parent(data: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("parent")
    stage = RealStage(root, pretraining(10, embedding={"type": "rotary"}), data)
    stage.attempt()
    return stage.folder.checkpoint().path


def trained(
    root: Path, spec: Extend, parent: Path, data: dict[str, Path], stops: tuple[int, ...] = ()
) -> StageFolder:
    """The stage's folder after attempts that died before these steps, and a whole one."""
    folder, original = Store(root).folder("extend", "key"), TrainingData.batch
    for stop in (*stops, None):

        def dying(data: TrainingData, index: int, at: int | None = stop) -> Batch:
            if index == at:
                raise DiedError
            return original(data, index)

        with (
            patch.object(TrainingData, "batch", dying),
            contextlib.suppress(DiedError),
            folder.begin("test", {}) as attempt,
        ):
            attempt.finish(run(spec, attempt.writer, {"from": parent, **data}))
    return folder


def test_nothing_changes_at_first() -> None:
    model, plain = decoder(), decoder()
    add_adapter(model, read_section(Adapter, ADAPTER), seed=1)
    assert torch.equal(model(ids()).logits, plain(ids()).logits)


def test_only_the_adapters_learn() -> None:
    model = decoder(feed_forward="swiglu")
    adapter = read_section(Adapter, ADAPTER)
    add_adapter(model, adapter, seed=1)
    model(ids()[:, :-1], labels=ids()[:, 1:]).loss.backward()
    learns = {name for name, p in model.named_parameters() if p.requires_grad}
    assert learns == {name for name, p in model.named_parameters() if p.grad is not None}
    found = sum(p.numel() for n, p in model.named_parameters() if n in learns)
    assert found == adapter.parameters(model.config)
    for name in learns:  # PEFT's names, after its prefix
        *_, target, matrix, kind = name.split(".")
        assert target in ADAPTER["targets"]
        assert (matrix in ("lora_A", "lora_B"), kind) == (True, "weight")
    assert len(learns) == 2 * len(ADAPTER["targets"]) * model.config.num_layers


def test_what_an_embedding_learns_is_trained_too() -> None:
    model = Decoder(SIZES, {"type": "fire"}, train_length=LENGTH)
    add_adapter(model, Adapter(rank=2), seed=1)
    of_embedding = [p for n, p in model.named_parameters() if n.startswith("position_embeddings")]
    assert of_embedding
    assert all(parameter.requires_grad for parameter in of_embedding)


@pytest.mark.parametrize("feed_forward", ["swiglu", "gelu"])
def test_merged_is_unmerged(feed_forward: str) -> None:
    model = decoder(feed_forward=feed_forward, biases=True)
    targets = [name for name in PROJECTIONS if name in projection_sizes(model.config)]
    add_adapter(model, read_section(Adapter, {**ADAPTER, "targets": targets}), seed=1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.1)
    before = model(ids()).logits
    merge_adapter(model)
    assert adapter_of(model) is None
    assert not any("lora" in name for name in model.state_dict())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert (model(ids()).logits - before).abs().max() < 1e-5
    assert (
        decoder(feed_forward=feed_forward, biases=True)(ids()).logits - before
    ).abs().max() > 0.01


def test_a_training_keeps_the_weights_and_its_export_is_merged(
    tmp_path: Path, parent: Path, data: dict[str, Path]
) -> None:
    folder = trained(tmp_path / "store", extending(ADAPTER), parent, data)
    checkpoint = folder.checkpoint().path
    before, after = (load_file(p / "model.safetensors") for p in (parent, checkpoint))
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert read_config(checkpoint).adapter == read_section(Adapter, ADAPTER)
    model = load_model(checkpoint)
    assert adapter_of(model) is not None
    expected = model(ids()).logits
    assert (expected - load_model(parent)(ids()).logits).abs().max() > 1e-3
    merged = load_model(export(checkpoint, tmp_path / "out", to="llama"))
    assert (merged(ids()).logits - expected).abs().max() < 1e-5


@pytest.mark.parametrize("embedding", [None, {"type": "pi", "factor": 2}])
def test_a_resumed_training_is_the_same_to_the_bit(
    tmp_path: Path, parent: Path, data: dict[str, Path], embedding: Any
) -> None:
    spec = extending(ADAPTER, embedding, checkpoint_every=3)
    whole = trained(tmp_path / "whole", spec, parent, data)
    parts = trained(tmp_path / "parts", spec, parent, data, stops=(2, 5))
    one, two = (load_file(f.checkpoint().path / "model.safetensors") for f in (whole, parts))
    assert one.keys() == two.keys()
    assert all(torch.equal(two[name], tensor) for name, tensor in one.items())
    assert parts.attempts.newest_token() == 3


def test_the_next_training_starts_from_the_merged_weights(
    tmp_path: Path, parent: Path, data: dict[str, Path]
) -> None:
    first = trained(tmp_path / "one", extending(ADAPTER), parent, data).checkpoint().path
    second = trained(tmp_path / "two", extending(None), first, data).checkpoint().path
    assert read_config(second).adapter is None
    assert not any("lora" in name for name in load_file(second / "model.safetensors"))


@pytest.mark.parametrize(
    ("adapter", "message"),
    [
        ({"rank": 0}, r"rank: found 0, needs .*1"),
        ({"rank": 2, "alpha": 0}, "alpha: found 0"),
        ({"rank": 2, "targets": ["q"]}, r"targets\[0\]: found 'q'"),
        ({"rank": 2, "targets": []}, "targets"),
        ({}, "rank: "),
        ({"rank": 2, "dropout": 0.1}, "dropout"),
    ],
)
def test_wrong_settings_are_one_clear_error(adapter: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        extending(adapter)


def test_a_rank_and_targets_fit_the_model() -> None:
    of = projection_sizes(SIZES)
    most = min(min(sizes) for sizes in of.values())
    assert not list(Adapter(rank=most).misfits(SIZES))
    assert [str(p) for p in Adapter(rank=most + 10_000).misfits(SIZES)]
    plain = dataclasses.replace(SIZES, feed_forward="gelu")
    [problem] = Adapter(rank=1, targets=("gate_proj",)).misfits(plain)
    assert "no gate" in str(problem)
    assert parameters(SIZES).total > Adapter(rank=1).parameters(SIZES)
