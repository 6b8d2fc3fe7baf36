"""A decoder that transformers has too is exported as its own LlamaForCausalLM or GPT-2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gpt2_block import GPT2
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2LMHeadModel, LlamaForCausalLM

from benchmarks.parity import MODELS, random_model
from fope_lab.cli import main
from fope_lab.model import CheckpointError, Decoder, ModelConfig, load_model, save_model
from fope_lab.model.export.folder import export

SIZES: dict[str, Any] = {"num_layers": 2, "num_heads": 4, "head_dim": 16, "vocab_size": 272}
EMBEDDINGS: dict[str, Any] = {
    "rope": {"type": "rope", "base": 500.0},
    "pi": {"type": "pi", "factor": 4},
    "ntk": {"type": "ntk", "factor": 4},
    "ntk-linear": {"type": "ntk", "factor": 4, "base_scaling": "linear"},
    "dynamic-ntk": {"type": "dynamic-ntk", "growth": 2},
    "dynamic-from": {"type": "dynamic-ntk", "original_length": 32},
    "yarn": {"type": "yarn", "factor": 4},
    "yarn-options": {
        "type": "yarn",
        "factor": 4,
        "alpha": 2,
        "beta": 16,
        "truncate": False,
        "attention_factor": 1.3,
        "original_length": 48,
    },
    "llama3": {"type": "llama3", "factor": 4},
}
TABLE = {"type": "learned", "num_positions": 80}


def checkpoint(folder: Path, embedding: Any, **sizes: Any) -> Decoder:
    model = Decoder(ModelConfig(**SIZES | sizes), embedding, train_length=64, seed=1).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    save_model(folder, model, context_length=128, tokenizer="byte")
    return model


def logits(model: Any, length: int = 200) -> torch.Tensor:
    ids = torch.randint(0, 256, (2, length), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        found = model(ids).logits
    assert isinstance(found, torch.Tensor)
    return found


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_it_is_hugging_faces_llama(tmp_path: Path, name: str) -> None:
    ours = checkpoint(tmp_path / "ours", EMBEDDINGS[name])
    folder = export(tmp_path / "ours", tmp_path / "llama", to="llama")
    theirs = AutoModelForCausalLM.from_pretrained(folder)
    assert type(theirs) is LlamaForCausalLM
    torch.testing.assert_close(logits(theirs), logits(ours), rtol=0, atol=1e-5)
    assert logits(ours).std() > 0.5
    torch.testing.assert_close(logits(load_model(folder)), logits(ours), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "sizes", [{"tie_embeddings": True}, {"num_kv_heads": 1}, {"feed_forward": "geglu"}]
)
def test_sizes_are_hugging_faces_too(tmp_path: Path, sizes: dict[str, Any]) -> None:
    ours = checkpoint(tmp_path / "ours", "rope", **sizes)
    folder = export(tmp_path / "ours", tmp_path / "llama", to="llama")
    theirs = LlamaForCausalLM.from_pretrained(folder)
    torch.testing.assert_close(logits(theirs), logits(ours), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_embeddings": False, "dropout": 0.1},
        {"feed_forward": "gelu", "intermediate_size": 100, "norm_eps": 1e-2},
        {"feed_forward": "relu"},
    ],
)
def test_it_is_hugging_faces_gpt2(tmp_path: Path, changes: dict[str, Any]) -> None:
    ours = checkpoint(tmp_path / "ours", TABLE, **GPT2 | changes)
    expected = logits(ours, 80)
    assert torch.equal(logits(load_model(tmp_path / "ours"), 80), expected)
    folder = export(tmp_path / "ours", tmp_path / "gpt2", to="gpt2")
    theirs = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert type(theirs) is GPT2LMHeadModel
    assert (theirs.config.n_positions, theirs.config.resid_pdrop) == (80, ours.config.dropout)
    torch.testing.assert_close(logits(theirs, 80), expected, rtol=0, atol=1e-5)
    assert expected.std() > 0.5
    assert AutoTokenizer.from_pretrained(folder)("ab").input_ids == [97, 98]


@pytest.mark.parametrize("name", [name for name, s in MODELS.items() if s["model_type"] == "llama"])
def test_there_and_back_is_the_same_model(tmp_path: Path, name: str) -> None:
    random_model(name).save_pretrained(tmp_path / "one")
    (tmp_path / "one" / "tokenizer.json").write_bytes(TOKENIZER)
    folder = export(tmp_path / "one", tmp_path / "two", to="llama")
    assert torch.equal(logits(load_model(folder)), logits(load_model(tmp_path / "one")))


TOKENIZER = (
    b'{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": '
    b'null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null, '
    b'"model": {"type": "WordLevel", "vocab": {"<eos>": 0, "a": 1}, "unk_token": "<eos>"}}'
)
YARN = {"type": "yarn", "factor": 4}


@pytest.mark.parametrize(
    ("to", "embedding", "sizes", "message"),
    [
        ("llama", "alibi", {}, r"embedding: found \{'type': 'alibi'\} \(allowed: rotary with at "),
        ("llama", "fope", {}, "embedding: found .*fourier"),
        ("llama", "resonance-rope", {}, "embedding: found .*resonance"),
        ("llama", YARN | {"type": "resonance-yarn"}, {}, "embedding: found .*yarn.*resonance"),
        ("llama", {"type": "rope", "fraction": 0.5}, {}, "partial_rotary_factor: found 0.5"),
        ("llama", {"type": "rope", "query_scale": "logn"}, {}, "embedding: found .*query_scale"),
        ("llama", {"type": "p-rope", "below_floor": "official"}, {}, "found .*below_floor"),
        (*("llama", YARN | {"ramp": "cycles"}, {}),
         r"yarn\.attention_factor: a ramp over cycles is Llama 3's \(allowed: 1\)"),
        (*("llama", YARN | {"blend": "wavelength"}, {}),
         r"yarn\.blend: found wavelength \(allowed: frequency\)"),
        ("llama", "rope", {"feed_forward": "relu"},
         r"feed_forward: found relu \(allowed: swiglu, "),
        ("llama", "rope", {"qk_norm": "rms"}, r"qk_norm: found rms \(allowed: none\)"),
        ("llama", "rope", {"scale_embeddings": True}, r"scale_embeddings: found True \(allowed: F"),
        (*("llama", "rope", GPT2 | {"feed_forward": "swiglu"}),
         r"norm: found layer \(allowed: rms\)"),
        ("gpt2", TABLE, GPT2 | {"norm": "rms"}, r"norm: found rms \(allowed: layer\)"),
        ("gpt2", TABLE, GPT2 | {"biases": False}, r"biases: found False \(allowed: True\)"),
        ("gpt2", TABLE, GPT2 | {"feed_forward": "swiglu"}, "feed_forward: found swiglu"),
        ("gpt2", TABLE, GPT2 | {"num_kv_heads": 2}, r"num_kv_heads: found 2 \(allowed: 4\)"),
        ("gpt2", TABLE, GPT2 | {"hidden_size": 32}, r"head_dim: found 16 \(allowed: 8\)"),
        ("gpt2", "rope", GPT2, r"embedding: found rotary \(allowed: learned\)"),
    ],
)  # fmt: skip
def test_what_a_class_does_not_have_is_named(
    tmp_path: Path, to: str, embedding: Any, sizes: dict[str, Any], message: str
) -> None:
    checkpoint(tmp_path / "ours", embedding, **sizes)
    architecture = {"llama": "LlamaForCausalLM", "gpt2": "GPT2LMHeadModel"}[to]
    with pytest.raises(CheckpointError, match=f"{architecture} cannot express .*{message}"):
        export(tmp_path / "ours", tmp_path / to, to=to)
    assert not (tmp_path / to).exists()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint(tmp_path / "ours", TABLE, **GPT2)
    arguments = ["export", str(tmp_path / "ours"), str(tmp_path / "gpt2"), "--to", "gpt2"]
    assert main([*arguments, "--store", str(tmp_path / "store")]) == 0
    assert f"from_pretrained('{tmp_path / 'gpt2'}')" in capsys.readouterr().out
