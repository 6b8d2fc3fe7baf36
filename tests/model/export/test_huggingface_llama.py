"""A decoder that transformers has too is exported as its own LlamaForCausalLM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaForCausalLM

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


def checkpoint(folder: Path, embedding: Any = "rope", **sizes: Any) -> Decoder:
    model = Decoder(ModelConfig(**SIZES, **sizes), embedding, train_length=64, seed=1).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    save_model(folder, model, context_length=128, tokenizer="byte")
    return model


def logits(model: Any) -> torch.Tensor:
    ids = torch.randint(0, 256, (2, 200), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        found = model(ids).logits
    assert isinstance(found, torch.Tensor)
    return found


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_it_is_hugging_faces_own(tmp_path: Path, name: str) -> None:
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
    ours = checkpoint(tmp_path / "ours", **sizes)
    folder = export(tmp_path / "ours", tmp_path / "llama", to="llama")
    theirs = LlamaForCausalLM.from_pretrained(folder)
    torch.testing.assert_close(logits(theirs), logits(ours), rtol=0, atol=1e-5)


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


@pytest.mark.parametrize(
    ("embedding", "sizes", "message"),
    [
        (
            "alibi",
            {},
            r"embedding: found \{'type': 'alibi'\} \(allowed: rotary with at most one of",
        ),
        ("fope", {}, "embedding: found .*fourier"),
        ("resonance-rope", {}, "embedding: found .*resonance"),
        ({"type": "resonance-yarn", "factor": 4}, {}, "embedding: found .*yarn.*resonance"),
        (
            {"type": "yarn", "factor": 4, "ramp": "cycles"},
            {},
            r"yarn\.attention_factor: a ramp over cycles is Llama 3's \(allowed: 1\)",
        ),
        (
            {"type": "yarn", "factor": 4, "blend": "wavelength"},
            {},
            r"yarn\.blend: found wavelength \(allowed: frequency\)",
        ),
        ("rope", {"feed_forward": "relu"}, r"feed_forward: found relu \(allowed: swiglu, geglu\)"),
        ("rope", {"qk_norm": "rms"}, r"qk_norm: found rms \(allowed: none\)"),
        ("rope", {"scale_embeddings": True}, r"scale_embeddings: found True \(allowed: False\)"),
    ],
)
def test_what_llama_does_not_have_is_an_error(
    tmp_path: Path, embedding: Any, sizes: dict[str, Any], message: str
) -> None:
    checkpoint(tmp_path / "ours", embedding, **sizes)
    with pytest.raises(CheckpointError, match=message):
        export(tmp_path / "ours", tmp_path / "llama", to="llama")
    assert not (tmp_path / "llama").exists()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint(tmp_path / "ours")
    command = ["export", str(tmp_path / "ours"), str(tmp_path / "llama"), "--to", "llama"]
    assert main(command) == 0
    assert f"from_pretrained('{tmp_path / 'llama'}')" in capsys.readouterr().out
