"""A decoder of GPT-2's block with learned positions is exported as transformers' own GPT-2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2LMHeadModel

from fope_lab.cli import main
from fope_lab.model import CheckpointError, Decoder, ModelConfig, load_model, save_model
from fope_lab.model.export.folder import export

BLOCK: dict[str, Any] = {
    "num_layers": 2,
    "num_heads": 4,
    "head_dim": 16,
    "vocab_size": 272,
    "norm": "layer",
    "biases": True,
    "feed_forward": "gelu_tanh",
    "tie_embeddings": True,
}
TABLE = {"type": "learned", "num_positions": 80}


def checkpoint(folder: Path, embedding: Any = TABLE, **changes: Any) -> Decoder:
    model = Decoder(ModelConfig(**BLOCK | changes), embedding, train_length=64, seed=1).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    save_model(folder, model, context_length=64, tokenizer="byte")
    return model


def logits(model: Any) -> torch.Tensor:
    ids = torch.randint(0, 256, (2, 80), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        found = model(ids).logits
    assert isinstance(found, torch.Tensor)
    return found


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_embeddings": False, "dropout": 0.1},
        {"feed_forward": "gelu", "intermediate_size": 100, "norm_eps": 1e-2},
        {"feed_forward": "relu"},
    ],
)
def test_it_is_hugging_faces_own(tmp_path: Path, changes: dict[str, Any]) -> None:
    ours = checkpoint(tmp_path / "ours", **changes)
    assert torch.equal(logits(load_model(tmp_path / "ours")), logits(ours))
    folder = export(tmp_path / "ours", tmp_path / "gpt2", to="gpt2")
    theirs = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert type(theirs) is GPT2LMHeadModel
    assert (theirs.config.n_positions, theirs.config.resid_pdrop) == (80, ours.config.dropout)
    torch.testing.assert_close(logits(theirs), logits(ours), rtol=0, atol=1e-5)
    assert logits(ours).std() > 0.5
    assert AutoTokenizer.from_pretrained(folder)("ab").input_ids == [97, 98]


@pytest.mark.parametrize(
    ("embedding", "changes", "problem"),
    [
        (TABLE, {"norm": "rms"}, r"norm: found rms \(allowed: layer\)"),
        (TABLE, {"biases": False}, r"biases: found False \(allowed: True\)"),
        (TABLE, {"feed_forward": "swiglu"}, "feed_forward: found swiglu"),
        (TABLE, {"num_kv_heads": 2}, r"num_kv_heads: found 2 \(allowed: 4\)"),
        (TABLE, {"hidden_size": 32}, r"hidden_size: found 32 \(allowed: 64\)"),
        ("rope", {}, r"embedding: found rotary \(allowed: learned\)"),
    ],
)
def test_what_gpt2_does_not_have_is_named(
    tmp_path: Path, embedding: Any, changes: dict[str, Any], problem: str
) -> None:
    checkpoint(tmp_path / "ours", embedding, **changes)
    with pytest.raises(CheckpointError, match=f"GPT2LMHeadModel cannot express .*{problem}"):
        export(tmp_path / "ours", tmp_path / "gpt2", to="gpt2")
    assert not (tmp_path / "gpt2").exists()


def test_llama_has_neither_layer_norm_nor_biases(tmp_path: Path) -> None:
    checkpoint(tmp_path / "ours", "rope", feed_forward="swiglu")
    with pytest.raises(CheckpointError, match=r"norm: found layer .*biases: found True"):
        export(tmp_path / "ours", tmp_path / "llama", to="llama")


def test_the_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint(tmp_path / "ours")
    arguments = ["export", str(tmp_path / "ours"), str(tmp_path / "gpt2"), "--to", "gpt2"]
    assert main([*arguments, "--store", str(tmp_path / "store")]) == 0
    assert "trust_remote_code" not in capsys.readouterr().out
