"""Saving, loading, swapping the embedding, and what a damaged checkpoint says."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import fope_lab
from fope_lab.cli import main as run_command
from fope_lab.embeddings import module
from fope_lab.model import (
    CheckpointError,
    Decoder,
    ModelConfig,
    load_model,
    read_config,
    save_model,
)
from fope_lab.model import decoder as decoder_module
from fope_lab.store.folder import StageFolder, find_checkpoint
from fope_lab.store.records import StoreError

CONFIG = ModelConfig(num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16, vocab_size=90)
FOPE = {"type": "fope", "base": 129}


def saved(
    directory: Path, embedding: Any = "rope", config: ModelConfig = CONFIG, seed: int = 3
) -> Decoder:
    model = Decoder(config, embedding, train_length=64, seed=seed)
    save_model(directory, model, context_length=128, tokenizer="byte")
    return model


def tokens() -> torch.Tensor:
    return torch.arange(60).remainder(CONFIG.vocab_size).expand(2, 60)


@pytest.mark.parametrize(
    "embedding", ["nope", "rope", "alibi", FOPE, {"type": "yarn", "factor": 4}]
)
@pytest.mark.parametrize("tied", [False, True])
def test_what_is_loaded_is_what_was_saved(tmp_path: Path, embedding: Any, tied: bool) -> None:
    config = dataclasses.replace(CONFIG, tie_embeddings=tied)
    model = saved(tmp_path, embedding, config)
    loaded = load_model(tmp_path)
    assert not loaded.training
    assert loaded.config == config
    before, after = model.state_dict(), loaded.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert torch.equal(loaded(tokens()).logits, model(tokens()).logits)
    assert (loaded.lm_head.weight is loaded.embed_tokens.weight) == tied
    assert [n for n, _ in loaded.named_parameters()] == [n for n, _ in model.named_parameters()]
    assert all(parameter.requires_grad for parameter in loaded.parameters())


@pytest.mark.parametrize("embedding", [FOPE, "kerple"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_weights_are_float32_whatever_was_saved(
    tmp_path: Path, embedding: Any, dtype: torch.dtype
) -> None:
    model = Decoder(CONFIG, embedding, train_length=64).to(dtype)
    save_model(tmp_path, model, context_length=64, tokenizer="byte")
    loaded = load_model(tmp_path)
    assert {tensor.dtype for tensor in loaded.state_dict().values()} == {torch.float32}
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    assert torch.equal(loaded(tokens()).logits, model.float()(tokens()).logits)


def test_a_position_embedding_has_the_dtypes_of_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frequencies of float64 would lose angles by it."""
    compute = module.build_embedding

    def build(*arguments: Any, **sizes: Any) -> Any:
        built = compute(*arguments, **sizes)
        built.cos_coef = built.cos_coef.double()
        return built

    monkeypatch.setattr(decoder_module, "build_embedding", build)
    saved(tmp_path, FOPE)
    loaded = load_model(tmp_path)
    assert loaded.position_embeddings[0].cos_coef.dtype == torch.float64
    assert loaded.position_embeddings[0].sin_coef.dtype == torch.float32


def test_the_configuration_is_read_without_the_weights(tmp_path: Path) -> None:
    saved(tmp_path, FOPE)
    (tmp_path / "model.safetensors").unlink()
    config = read_config(tmp_path)
    assert config.model == CONFIG
    assert config.embedding.canonical() == {
        "type": "fourier",
        "base": 129.0,
        "transforms": [{"type": "clip_floor"}],
    }
    assert (config.train_length, config.context_length, config.tokenizer) == (64, 128, "byte")


@pytest.mark.parametrize("embedding", ["nope", "alibi", FOPE, {"type": "yarn", "factor": 4}])
def test_an_embedding_can_be_swapped(tmp_path: Path, embedding: Any) -> None:
    model = saved(tmp_path, "rope")
    swapped = load_model(tmp_path, embedding=embedding, seed=7)
    expected = Decoder(CONFIG, embedding, train_length=64, seed=7)
    weights = {n: p for n, p in model.state_dict().items() if "position_embeddings" not in n}
    expected.load_state_dict({**expected.state_dict(), **weights})
    assert swapped.embedding == expected.embedding
    assert torch.equal(swapped(tokens()).logits, expected(tokens()).logits)


def coefficients(model: Decoder) -> torch.Tensor:
    return torch.stack([e.cos_coef for e in model.position_embeddings])


def test_coefficients_stay_when_only_frequencies_change(tmp_path: Path) -> None:
    model = saved(tmp_path, FOPE)
    extended = load_model(tmp_path, embedding={"type": "fope-yarn", "base": 129, "factor": 4})
    assert torch.equal(coefficients(extended), coefficients(model))
    assert extended.position_embeddings[0].attention_factor > 1


def test_coefficients_are_fresh_when_the_series_changes(tmp_path: Path) -> None:
    model = saved(tmp_path, FOPE, seed=3)
    louder = load_model(tmp_path, embedding={**FOPE, "sigma": 0.6}, seed=7)
    expected = Decoder(CONFIG, {**FOPE, "sigma": 0.6}, train_length=64, seed=7)
    assert torch.equal(coefficients(louder), coefficients(expected))
    more_pairs = {"type": "fourier", "transforms": [{"type": "clip_floor", "original_length": 256}]}
    longer = load_model(tmp_path, embedding={**more_pairs, "base": 129})
    assert coefficients(longer).shape[-1] > coefficients(model).shape[-1]


def test_a_stage_folder_ends_with_its_newest_complete_checkpoint(tmp_path: Path) -> None:
    folder = StageFolder(tmp_path)
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(StoreError, match="no complete checkpoint"):
        find_checkpoint(tmp_path)
    with folder.begin("driver", {}) as attempt:
        attempt.writer.save_checkpoint(200, saved)
    with folder.begin("driver", {}) as attempt:
        last = attempt.writer.save_checkpoint(300, saved).path
        saved(tmp_path / "checkpoint" / "0003-000000400")  # no manifest: it is being written
        assert find_checkpoint(tmp_path) == last
        attempt.finish({})
    assert find_checkpoint(tmp_path) == find_checkpoint(last) == last
    assert fope_lab.load_model(tmp_path).embedding.canonical() == {"type": "rotary"}
    folder.paths.result.unlink()
    with pytest.raises(StoreError, match=r"damaged or missing: result\.json"):
        find_checkpoint(tmp_path)


def test_a_stage_without_a_model_says_so(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    with StageFolder(tmp_path).begin("driver", {}) as attempt:
        attempt.finish({})
    with pytest.raises(StoreError, match="without a checkpoint"):
        find_checkpoint(tmp_path)


def test_a_model_with_a_flipped_bit_is_refused(tmp_path: Path) -> None:
    """Its file has the right size, and its weights would be read without a word."""
    with StageFolder(tmp_path).begin("driver", {}) as attempt:
        weights = attempt.writer.save_checkpoint(1, saved).path / "model.safetensors"
        attempt.finish({})
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    for path in (tmp_path, weights.parent):
        with pytest.raises(StoreError, match=r"model\.safetensors changed after the checkpoint"):
            fope_lab.load_model(path)
    to = tmp_path / "exported"
    exported = run_command(["export", str(tmp_path), str(to), "--store", str(tmp_path / "none")])
    assert exported != 0
    assert not to.exists()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def rewrite(**changes: Any) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def test_a_tokenizer_of_its_own_is_found_wherever_the_checkpoint_is(tmp_path: Path) -> None:
    saved(tmp_path / "one", FOPE)
    rewrite(tokenizer="./tokenizer/tokenizer.json")(tmp_path / "one" / "config.json")
    (tmp_path / "one").rename(tmp_path / "two")
    expected = tmp_path / "two" / "tokenizer" / "tokenizer.json"
    assert read_config(tmp_path / "two").tokenizer == str(expected)


@pytest.mark.parametrize(
    ("file", "damage", "words"),
    [
        ("config.json", Path.unlink, "is not a checkpoint: it has no config.json"),
        ("config.json", cut, r"config\.json cannot be read"),
        ("config.json", rewrite(format=2), "is not of checkpoint format 1"),
        ("config.json", lambda path: path.write_text('{"hidden_size": 64}'),
         r"has neither a format \(allowed: 1.*\) nor a model_type \(allowed: fope-lab, gemma,"),
        ("config.json", rewrite(embedding="ropee"), "is damaged.*did you mean 'rope'"),
        ("config.json", rewrite(model={"num_layers": 2}), "is damaged.*num_heads"),
        ("config.json", rewrite(unknown=1), "is damaged.*unknown"),
        ("config.json", lambda path: path.write_text("[]"), "holds no mapping"),
        ("model.safetensors", Path.unlink, r"model\.safetensors is missing"),
        ("model.safetensors", cut, r"model\.safetensors is damaged"),
        ("model.safetensors", lambda path: path.write_bytes(b"x"), "is damaged"),
        ("config.json",
         rewrite(model={"num_layers": 3, "num_heads": 4, "head_dim": 16, "vocab_size": 90}),
         "does not fit its config.json"),
    ],
)  # fmt: skip
def test_a_damaged_checkpoint_is_one_clear_error(
    tmp_path: Path, file: str, damage: Callable[[Path], object], words: str
) -> None:
    saved(tmp_path)
    damage(tmp_path / file)
    with pytest.raises(CheckpointError, match=words) as raised:
        load_model(tmp_path)
    assert str(tmp_path) in str(raised.value)


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors")


def test_weights_that_do_not_fit_are_counted_in_one_line(tmp_path: Path) -> None:
    def change(weights: dict[str, torch.Tensor]) -> None:
        del weights["layers.0.mlp.up_proj.weight"], weights["layers.1.mlp.up_proj.weight"]
        weights["extra"] = torch.zeros(1)
        weights["norm.weight"] = torch.zeros(3)
        weights["lm_head.weight"] = torch.zeros(64, 90)

    saved(tmp_path)
    change_weights(tmp_path, change)
    with pytest.raises(CheckpointError) as raised:
        load_model(tmp_path)
    assert str(raised.value) == (
        f"{tmp_path / 'model.safetensors'} does not fit its config.json: "
        "2 missing (first layers.0.mlp.up_proj.weight); 1 unexpected (first extra); "
        "2 of another shape (first norm.weight: (3,) instead of (64,))"
    )


def test_whole_numbers_are_no_weights(tmp_path: Path) -> None:
    saved(tmp_path)
    change_weights(tmp_path, lambda w: w.update({"norm.weight": w["norm.weight"].char()}))
    expected = r"1 of another shape \(first norm\.weight: \(64,\) torch.int8 instead of \(64,\)\)$"
    with pytest.raises(CheckpointError, match=expected):
        load_model(tmp_path)
