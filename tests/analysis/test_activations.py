"""Recorded queries and keys against the formulas, and against what attention really uses."""

from __future__ import annotations

import dataclasses
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from transformers import GemmaConfig, GemmaForCausalLM, LlamaConfig, LlamaForCausalLM

from fope_lab.analysis.activations import embedding_of, record
from fope_lab.model import Decoder, ModelConfig, attention, load_model

CONFIG = ModelConfig(num_layers=3, num_heads=4, num_kv_heads=2, head_dim=8, vocab_size=50)
FOPE = {"type": "fope", "base": 129}


def model_of(embedding: Any = "rope", **options: Any) -> Decoder:
    model = Decoder(dataclasses.replace(CONFIG, **options), embedding, train_length=32).eval()
    generator = torch.Generator().manual_seed(1)
    for weight in model.parameters():  # larger than at the start, so that every layer matters
        weight.data = torch.randn(weight.shape, generator=generator) * 0.3
    return model


def text(batch: int = 2, length: int = 20) -> Tensor:
    return torch.randint(0, 50, (batch, length), generator=torch.Generator().manual_seed(0))


def by_hand(model: Decoder, tokens: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Queries and keys of all layers, from the weights and the formulas alone, in float64."""
    found = []
    x = model.embed_tokens.weight.double()[tokens]
    length = tokens.shape[1]

    def rms(x: Tensor, gain: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gain.double()

    def rotated(x: Tensor) -> Tensor:
        omega = 10_000.0 ** (-torch.arange(4, dtype=torch.float64) / 4)
        turn = torch.polar(torch.ones(length, 4).double(), torch.arange(length)[:, None] * omega)
        z = torch.complex(x[..., :4], x[..., 4:]) * turn
        return torch.cat((z.real, z.imag), -1)

    for layer in model.layers:
        state = {name: p.double() for name, p in layer.named_parameters()}
        h = rms(x, state["input_layernorm.weight"])
        q, k, v = (
            (h @ state[f"self_attn.{name}_proj.weight"].T).view(*h.shape[:2], -1, 8).transpose(1, 2)
            for name in "qkv"
        )
        found.append((q, k))
        k, v = (t.repeat_interleave(2, dim=1) for t in (k, v))
        scores = rotated(q) @ rotated(k).mT / 8**0.5
        later = torch.ones(length, length).triu(1).bool()
        mixed = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
        x = x + mixed.transpose(1, 2).flatten(2) @ state["self_attn.o_proj.weight"].T
        h = rms(x, state["post_attention_layernorm.weight"])
        gate, up, down = (state[f"mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
        x = x + (F.silu(h @ gate.T) * (h @ up.T)) @ down.T
    return found


def test_queries_and_keys_are_those_of_the_formulas() -> None:
    model = model_of()
    recorded = list(record(model, text()))
    assert [index for index, _, _ in recorded] == [0, 1, 2]
    for (_, q, k), (right_q, right_k) in zip(recorded, by_hand(model, text()), strict=True):
        assert q.shape == (2, 4, 20, 8)
        assert k.shape == (2, 2, 20, 8)
        torch.testing.assert_close(q.double(), right_q, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(k.double(), right_k, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("embedding", ["rope", FOPE, "alibi", "sinusoidal", "nope"])
@pytest.mark.parametrize("options", [{}, {"qk_norm": "layer"}, {"scale_embeddings": True}])
def test_they_are_what_attention_gets_when_the_model_runs(
    embedding: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, used = model_of(embedding, **options), []
    rotated = [
        embedding_of(model, index).rotate(q, k, torch.arange(20))
        for index, q, k in record(model, text())
    ]
    real = attention.causal_attention

    def spy(q: Tensor, k: Tensor, *rest: Any) -> Tensor:
        used.append((q, k))
        return real(q, k, *rest)

    monkeypatch.setattr(attention, "causal_attention", spy)
    with torch.inference_mode():
        model.hidden(text())
    assert len(used) == len(rotated) == 3
    for (q, k), (real_q, real_k) in zip(rotated, used, strict=True):
        assert torch.equal(q, real_q)
        assert torch.equal(k, real_k)


@pytest.mark.parametrize(
    ("config", "model"), [(LlamaConfig, LlamaForCausalLM), (GemmaConfig, GemmaForCausalLM)]
)
def test_they_are_hugging_faces(config: Any, model: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "head_dim": 8, "vocab_size": 50}
    heads = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1}
    theirs = model(config(**sizes, **heads, max_position_embeddings=64)).eval()
    for parameter in theirs.parameters():
        parameter.data += torch.randn_like(parameter) * 0.1
    theirs.save_pretrained(tmp_path)
    outputs: list[Tensor] = []
    for layer in theirs.model.layers:
        for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj):
            projection.register_forward_hook(lambda *call: outputs.append(call[2].detach()))
    theirs(text())
    ours = load_model(tmp_path)
    assert isinstance(ours, Decoder)
    for index, q, k in record(ours, text()):
        for found, expected in zip((q, k), outputs[2 * index :], strict=False):
            split = expected.view(2, 20, -1, 8).transpose(1, 2)
            torch.testing.assert_close(found, split, rtol=1e-4, atol=1e-5)
            assert found.std() > 0.05


def test_positions_may_be_given() -> None:
    model = model_of()
    shifted = list(record(model, text(), torch.arange(20) * 3))
    for index, (_, q, _) in enumerate(record(model, text())):
        assert torch.equal(q, shifted[index][1]) == (index == 0)


def test_one_layer_is_held_at_a_time_and_the_model_is_left_as_it_was() -> None:
    model = model_of()
    before = model.hidden(text())
    running = record(model, text())
    _, q, k = next(running)
    last = weakref.ref(q)
    assert not torch.is_inference_mode_enabled()  # between layers the caller's modes are in force
    del q, k
    next(running)
    assert last() is None
    del running  # stopped half-way
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert torch.equal(model.hidden(text()), before)
