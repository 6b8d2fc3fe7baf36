"""Models of the Llama family give Hugging Face's logits, however they are saved."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, PreTrainedModel

from benchmarks.parity import MODELS, SIZES, random_model
from fope_lab.model import CheckpointError, load_model, read_config

TOLERANCE = 1e-5


def tokens(length: int = 160) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, SIZES["vocab_size"], (2, length), generator=generator)


def save(folder: Path, name: str, **how: Any) -> PreTrainedModel:
    model = random_model(name)
    model.save_pretrained(folder, **how)
    return model


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found = model(tokens()).logits
    assert isinstance(found, torch.Tensor)
    return found


def rewrite(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    description = {**json.loads(path.read_text()), **changes}
    kept = {name: value for name, value in description.items() if value != "left out"}
    path.write_text(json.dumps(kept))


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_hugging_faces(tmp_path: Path, name: str) -> None:
    """Up to and beyond the original length of what is scaled."""
    theirs, ours = save(tmp_path, name), load_model(tmp_path)
    for length in (20, 160):
        with torch.no_grad():
            found, expected = (model(tokens(length)).logits for model in (ours, theirs))
        torch.testing.assert_close(found, expected, rtol=0, atol=TOLERANCE)
        assert expected.std() > 0.5  # of logits that a wrong gain or frequency would move


@pytest.mark.parametrize("name", ["llama3", "yarn", "dynamic-4", "linear", "base"])
def test_the_spelling_before_transformers_5_is_the_same(tmp_path: Path, name: str) -> None:
    save(tmp_path, name)
    new = read_config(tmp_path)
    rope = json.loads((tmp_path / "config.json").read_text())["rope_parameters"]
    old = {
        "rope_parameters": "left out",
        "rope_theta": rope.pop("rope_theta"),
        "rope_scaling": None if rope == {"rope_type": "default"} else rope,
    }
    rewrite(tmp_path, **old)
    assert read_config(tmp_path) == new
    rope["type"] = rope.pop("rope_type")
    rewrite(tmp_path, **old)
    assert read_config(tmp_path) == new


def test_shards_are_one_model(tmp_path: Path) -> None:
    expected = save(tmp_path, "gqa", max_shard_size="100KB")
    shards = sorted(tmp_path.glob("*.safetensors"))
    assert len(shards) > 1
    ours = load_model(tmp_path)
    torch.testing.assert_close(logits(ours), logits(expected), rtol=0, atol=TOLERANCE)
    shards[1].unlink()
    with pytest.raises(CheckpointError, match=rf"{shards[1].name} is missing"):
        load_model(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"index\.json is damaged"):
        load_model(tmp_path)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["tied", "gemma"])
def test_narrow_weights_are_held_in_float32(tmp_path: Path, name: str, dtype: torch.dtype) -> None:
    random_model(name).to(dtype).save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    assert {parameter.dtype for parameter in ours.parameters()} == {torch.float32}
    expected = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    torch.testing.assert_close(logits(ours), logits(expected), rtol=0, atol=TOLERANCE)


def test_a_head_is_tied_or_not(tmp_path: Path) -> None:
    for name, tied in (("tied", True), ("mha", False), ("gemma", True), ("gemma-untied", False)):
        save(tmp_path / name, name)
        ours = load_model(tmp_path / name)
        assert (ours.lm_head.weight is ours.embed_tokens.weight) == tied
    rewrite(tmp_path / "mha", tie_word_embeddings=True)
    with pytest.raises(CheckpointError, match=r"tie_word_embeddings is true, but lm_head\.weight"):
        load_model(tmp_path / "mha")
    rewrite(tmp_path / "tied", tie_word_embeddings=False)
    with pytest.raises(CheckpointError, match=r"does not fit .*: 1 missing \(first lm_head"):
        load_model(tmp_path / "tied")


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors")


def test_a_tensor_under_two_names_is_an_error(tmp_path: Path) -> None:
    save(tmp_path, "gqa")
    change_weights(tmp_path, lambda w: w.update({"norm.weight": w["model.norm.weight"] + 1}))
    with pytest.raises(CheckpointError, match=r"safetensors: (model\.)?norm\.weight occurs twice"):
        load_model(tmp_path)


@pytest.mark.parametrize("name", ["tied", "gemma"])
def test_a_tied_head_alone_is_the_embedding(tmp_path: Path, name: str) -> None:
    expected = save(tmp_path, name)
    embedding = "model.embed_tokens.weight"
    change_weights(tmp_path, lambda w: w.update({"lm_head.weight": w.pop(embedding)}))
    ours = load_model(tmp_path)
    assert ours.lm_head.weight is ours.embed_tokens.weight
    torch.testing.assert_close(logits(ours), logits(expected), rtol=0, atol=TOLERANCE)
    change_weights(tmp_path, lambda w: w.pop("lm_head.weight"))
    with pytest.raises(CheckpointError, match=r"1 missing \(first embed_tokens\.weight\)"):
        load_model(tmp_path)
