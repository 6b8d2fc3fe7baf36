"""Extending a model from one embedding to another (FoPE, arXiv 2412.17739, §5.3), end to end."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from real_training import BYTES, LENGTH, ROWS, SIZES, RealStage, prepare, pretraining
from sections import read_section
from torch import Tensor

from fope_lab.embeddings import EmbeddingError, build_embedding
from fope_lab.evaluation.perplexity.losses import perplexity
from fope_lab.model import load_model, read_config
from fope_lab.stages.training import Extend
from fope_lab.store.root import Store
from trainers.stage import run

BASE = 129.0  # keeps half of the pairs above the floor, as in the paper, at a short length
FACTOR = 2
MODEL = dataclasses.replace(SIZES, head_dim=16, hidden_size=32)
PARENTS: Mapping[str, Any] = {
    "rope": {"type": "rope", "base": BASE},
    "fope": {"type": "fope", "base": BASE},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return prepare(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def parents(data: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A pretrained checkpoint of each embedding that is extended."""
    found = {}
    for name, embedding in PARENTS.items():
        root = tmp_path_factory.mktemp(name)
        chosen = pretraining(20, embedding=embedding, learning_rate=1e-2)
        stage = RealStage(root, dataclasses.replace(chosen, model=MODEL), data)
        stage.attempt()
        checkpoint = stage.folder.checkpoint()
        found[name] = checkpoint.path
    return found


def extending(embedding: Any, steps: int = 10) -> Extend:
    length = FACTOR * LENGTH
    settings = {"tokens": steps * ROWS * length, "batch_tokens": ROWS * length, "log_every": 1}
    return read_section(
        Extend,
        {
            "kind": "extend",
            "from": "pretrain",
            "embedding": embedding,
            "data": {"length": length, "corpus": {"files": __file__}},
            "train": settings | {"learning_rate": 5e-3},
        },
    )


def extended(
    root: Path, stage: Extend, parent: Path, data: dict[str, Path]
) -> tuple[list[float], Path]:
    """The losses of each step, and the checkpoint."""
    folder = Store(root).folder("extend", "key")
    with folder.begin("test", {}) as attempt:
        attempt.finish(run(stage, attempt.writer, {"from": parent, **data}))
    checkpoint = folder.checkpoint()
    return [row.values["loss"] for row in folder.rows()], checkpoint.path


def built(embedding: Any, train_length: int = LENGTH) -> Tensor:
    """The frequencies of an embedding."""
    sizes = {"head_dim": MODEL.head_dim, "num_heads": MODEL.num_heads}
    inv_freq = build_embedding(embedding, train_length=train_length, **sizes).inv_freq
    return inv_freq


@pytest.mark.parametrize(
    ("parent", "name"),
    [
        ("rope", "yarn"),
        ("fope", "yarn"),
        ("rope", "fope"),
        ("fope", "fope"),
        ("fope", "fope-yarn"),
        ("rope", "pi"),
        ("rope", "ntk"),
        ("rope", "resonance-yarn"),
    ],
)
def test_a_model_goes_on_with_an_embedding_for_longer_text(
    data: dict[str, Path], parents: dict[str, Path], tmp_path: Path, parent: str, name: str
) -> None:
    options = {} if name == "fope" else {"factor": FACTOR}
    stage = extending({"type": name, "base": BASE, **options})
    losses, checkpoint = extended(tmp_path, stage, parents[parent], data)
    config = read_config(checkpoint)
    assert config.embedding == stage.embedding
    assert (config.train_length, config.context_length) == (LENGTH, FACTOR * LENGTH)
    model = load_model(checkpoint)
    frequencies = model.position_embeddings[0].inv_freq
    assert torch.equal(frequencies, built(stage.embedding))
    if name not in ("pi", "ntk"):  # the only ones that the original length is nothing to
        assert not torch.equal(frequencies, built(stage.embedding, FACTOR * LENGTH))
    if (parent, name) != ("fope", "fope"):
        assert not torch.equal(frequencies, built(PARENTS[parent]))
    assert losses[0] < 5.5  # not from scratch: that is log 258
    assert losses[-1] < losses[0]
    ids = torch.arange(400).numpy() % 256
    assert perplexity(model, ids, FACTOR * LENGTH).perplexity < BYTES.vocabulary_size**3


@pytest.mark.parametrize(
    "embedding",
    [
        {"type": "pi", "factor": 1},
        {"type": "ntk", "factor": 1},
        {"type": "yarn", "factor": 1},
        {"type": "resonance-yarn", "factor": 1},
        {"type": "fope-yarn", "factor": 1},
        # What is whole, or above the floor, stays.
        {"type": "rotary", "transforms": ["full_cycles", "full_cycles"]},
        {"type": "rotary", "transforms": ["clip_floor", "clip_floor"]},
        {"type": "rotary", "transforms": [{"type": "clip_floor", "original_length": 10**6}]},
        {"type": "rotary", "transforms": ["resonance", "resonance"]},
        {"type": "yarn", "factor": 4, "original_length": 10**6},  # YaRN slows none of them down
    ],
)
def test_what_changes_no_frequency_is_an_error_before_anything_starts(
    data: dict[str, Path], parents: dict[str, Path], tmp_path: Path, embedding: dict[str, Any]
) -> None:
    stage = extending({"base": BASE, **embedding})
    with pytest.raises(EmbeddingError, match="changes no frequency"):
        extended(tmp_path, stage, parents["rope"], data)
    assert Store(tmp_path).folder("extend", "key").rows() == []


def test_a_lower_floor_keeps_the_coefficients_of_the_parent(
    data: dict[str, Path], parents: dict[str, Path], tmp_path: Path
) -> None:
    lower = {"type": "fope", "base": BASE, "original_length": FACTOR * LENGTH}
    stage = dataclasses.replace(extending(lower, steps=1), resizing="expand")
    _, checkpoint = extended(tmp_path, stage, parents["fope"], data)
    old, new = (
        load_model(path).position_embeddings[0].cos_coef for path in (parents["fope"], checkpoint)
    )
    assert isinstance(old, Tensor)
    assert isinstance(new, Tensor)
    heads, frequencies, pairs = old.shape
    assert new.shape[1] > frequencies
    assert torch.equal(new[:heads, :frequencies, :pairs], old)
    assert new[:, frequencies:].count_nonzero()


@pytest.mark.parametrize("parent", PARENTS)
def test_going_on_with_the_same_embedding_is_legal(
    data: dict[str, Path], parents: dict[str, Path], tmp_path: Path, parent: str
) -> None:
    found = [
        extended(tmp_path / str(embedding is None), extending(embedding), parents[parent], data)
        for embedding in (None, PARENTS[parent])
    ]
    assert found[0][0] == found[1][0]
    for _, checkpoint in found:
        assert read_config(checkpoint).embedding == read_config(parents[parent]).embedding


def test_gpt2s_block_goes_on_at_the_positions_that_its_table_has(
    data: dict[str, Path], tmp_path: Path
) -> None:
    """With the parent's table: what the child reads first is what the parent has learned."""
    block = dataclasses.replace(
        MODEL, norm="layer", biases=True, feed_forward="gelu_tanh", dropout=0.1
    )
    table = {"type": "learned", "num_positions": FACTOR * LENGTH, "random_offset": True}
    chosen = pretraining(20, embedding=table, learning_rate=1e-2)
    parent = RealStage(tmp_path / "parent", dataclasses.replace(chosen, model=block), data)
    parent.attempt()
    found = parent.folder.checkpoint()
    goes_on = dataclasses.replace(extending(table, steps=1), embedding=None)
    losses, checkpoint = extended(tmp_path / "child", goes_on, found.path, data)
    first = next(row.values["loss"] for row in parent.folder.rows())
    assert losses[0] < first - 0.1
    before, after = load_model(found.path), load_model(checkpoint)
    assert before.config == after.config == block
    tables = [model.position_embeddings[0].by_position for model in (before, after)]
    assert tables[0].shape == tables[1].shape == (FACTOR * LENGTH, MODEL.hidden_size)  # type: ignore[union-attr]
    assert not torch.equal(tables[0], tables[1])  # type: ignore[arg-type]
    assert any(name.endswith(".bias") for name, _ in after.named_parameters())
