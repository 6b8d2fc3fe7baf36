"""Whatever the config.json of a folder holds, a sweep that starts from it is planned or refused."""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import save_file
from transformers import AutoConfig

from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import load_tokenizer
from fope_lab.model import CheckpointError, load_model
from fope_lab.model.checkpoint_files import ConfigSource
from fope_lab.model.families.base import FAMILIES, read_family_config
from fope_lab.planning.estimate import estimate_plans
from fope_lab.sweep import SweepError, load_sweep, plan

SWEEP = """
name: foreign
stages:
  perplexity: {kind: perplexity, from: ./model, corpus: c4, lengths: [32]}
  extend: {kind: extend, from: ./model, data: {corpus: c4, length: 64},
           train: {tokens: 1e5, batch_tokens: 2048, learning_rate: 1e-4}}
"""
SIZES = {"hidden_size": 32, "intermediate_size": 64, "vocab_size": 257, "head_dim": 16}
OURS: dict[str, Any] = {
    "format": 1,
    "model": {"num_layers": 1, "num_heads": 2, **SIZES},
    "embedding": {"type": "rotary", "base": 10000.0, "transforms": []},
    "train_length": 64,
    "context_length": 64,
    "tokenizer": "byte",
}
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    **SIZES,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 64,
    "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64},
}
SOURCE = ConfigSource("config.json", Path("model"), "byte")
VALUES = ("12", -1, 0, 10**6, 2**70, float("nan"), [], {}, None, True, "/etc/passwd", 1.5)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "tokenizer.json").write_text("{}")
    import numpy as np

    save_file({"embed.weight": np.zeros((2, 2), np.float32)}, folder / "model.safetensors")
    return folder


def problems(model: Path, config: str) -> list[str]:
    """What is wrong with the sweep; nothing if it can be planned."""
    (model / "config.json").write_text(config)
    try:
        estimate_plans([plan(load_sweep(model.parent / "sweep.yaml"))]).as_json()
    except SweepError as error:
        return [problem.message for problem in error.problems]
    return []


def changed(value: dict[str, Any], values: Sequence[Any] = VALUES) -> Iterator[dict[str, Any]]:
    """The value with one of its fields removed, or exchanged for each of the values."""
    for name, old in value.items():
        yield {k: v for k, v in value.items() if k != name}
        for new in values:
            yield {**value, name: new}
        if isinstance(old, dict):
            yield from ({**value, name: inner} for inner in changed(old, values))


@pytest.mark.parametrize("config", [OURS, LLAMA], ids=["ours", "llama"])
def test_one_field_is_wrong(model: Path, config: dict[str, Any]) -> None:
    assert problems(model, json.dumps(config)) == []
    for one in changed(copy.deepcopy(config)):
        for message in problems(model, json.dumps(one)):
            assert "\n" not in message


@pytest.mark.parametrize("family", FAMILIES.all())
def test_one_field_of_a_family_is_wrong(family: str) -> None:
    """It is read as something that a plan can hold, or refused in one line."""
    config = {**AutoConfig.for_model(family).to_dict(), "architectures": None}
    config = {name: value for name, value in config.items() if not isinstance(value, list)}
    hash(read_family_config(config, SOURCE))
    for one in changed(
        copy.deepcopy(config), ("12", -1, 2**70, math.nan, [], {"full_attention": 5})
    ):
        try:
            hash(read_family_config(one, SOURCE))
        except CheckpointError as error:
            lines = str(error).splitlines()
            assert len(lines) == 1


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("[" * 100_000, "cannot be read: it is nested too deeply"),
        (json.dumps({**OURS, "model": {**OURS["model"], "num_layers": "12"}}), "found '12', needs"),
        (json.dumps({**OURS, "tokenizer": 3}), "tokenizer: found 3, needs text"),
    ],
)
def test_it_says_what_is_wrong(model: Path, config: str, says: str) -> None:
    [message, _] = problems(model, config)
    assert str(model / "config.json") in message
    assert says in message


def test_a_million_layers_are_not_made_to_be_compared(model: Path) -> None:
    sizes = {**OURS["model"], "num_layers": 10**6}
    (model / "config.json").write_text(json.dumps({**OURS, "model": sizes}))
    started = time.monotonic()
    with pytest.raises(CheckpointError, match=r"does not fit its config.json: 1,000,000 layers"):
        load_model(model)
    assert time.monotonic() - started < 10


def test_a_file_that_is_no_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text("notes")
    with pytest.raises(DataError, match=r"notes\.json is not a tokenizer\.json: "):
        load_tokenizer(str(tmp_path / "notes.json"))
