"""Attention weights against what attention gives out, and against a plain loop."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from fope_lab.analysis.activations import embedding_of, record
from fope_lab.analysis.attention_pattern import attention_patterns, attention_weights
from fope_lab.embeddings import build_embedding
from fope_lab.model import Decoder, ModelConfig

EMBEDDINGS: dict[str, Any] = {
    "rope": "rope",
    "p-rope": "p-rope",
    "fope": {"type": "fope", "base": 129},
    "yarn": {"type": "yarn", "factor": 4},
    "alibi": "alibi",
    "kerple": "kerple",
    "fire": "fire",
    "nope": "nope",
    "sinusoidal": "sinusoidal",
}


def model_of(embedding: Any, **sizes: Any) -> Decoder:
    config = ModelConfig(num_layers=2, num_heads=4, head_dim=8, vocab_size=40, **sizes)
    model = Decoder(config, embedding, train_length=16).eval()
    generator = torch.Generator().manual_seed(1)
    for weight in model.parameters():
        weight.data += torch.randn(weight.shape, generator=generator) * 0.3
    return model


def tokens(batch: int = 2, length: int = 23) -> Tensor:
    return torch.randint(0, 40, (batch, length), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("name", EMBEDDINGS)
def test_the_weights_give_what_attention_gives(name: str, kv_heads: int) -> None:
    model = model_of(EMBEDDINGS[name], num_kv_heads=kv_heads)
    values: list[Tensor] = []
    outputs: list[Tensor] = []
    for layer in model.layers:
        layer.self_attn.v_proj.register_forward_hook(lambda *call: values.append(call[2]))
        layer.self_attn.register_forward_hook(lambda *call: outputs.append(call[2]))
    found = list(attention_patterns(model, tokens()))
    assert [layer for layer, _ in found] == [0, 1]
    for layer, weights in found:
        v = values[layer].unflatten(-1, (kv_heads, 8)).transpose(1, 2)
        mixed = weights @ v.repeat_interleave(4 // kv_heads, dim=1)
        attention = model.layers[layer].self_attn
        expected = attention.o_proj(mixed.transpose(1, 2).flatten(2))
        torch.testing.assert_close(expected, outputs[layer], rtol=0, atol=2e-5)
        assert outputs[layer].std() > 0.1


@pytest.mark.parametrize("name", ["rope", "alibi"])
def test_a_plain_loop(name: str) -> None:
    embedding = build_embedding(name, head_dim=4, num_heads=2, num_kv_heads=1, train_length=8)
    q, k = torch.randn(1, 2, 5, 4).double(), torch.randn(1, 1, 5, 4).double()
    weights = attention_weights(embedding, q, k, torch.arange(5))
    slopes = (2**-4, 2**-8)  # of ALiBi for two heads
    for head in range(2):
        for i in range(5):
            logits = []
            for j in range(i + 1):
                turned = {"rope": (1.0, 0.01), "alibi": (0.0, 0.0)}[name]
                score = 0.0
                for pair, omega in enumerate(turned):
                    a = complex(*q[0, head, i, [pair, pair + 2]].tolist())
                    b = complex(*k[0, 0, j, [pair, pair + 2]].tolist())
                    turn = complex(math.cos((i - j) * omega), math.sin((i - j) * omega))
                    score += (a * turn * b.conjugate()).real
                bias = {"rope": 0.0, "alibi": -slopes[head] * (i - j)}[name]
                logits.append(score / 2 + bias)
            total = sum(map(math.exp, logits))
            expected = [math.exp(logit) / total for logit in logits] + [0.0] * (4 - i)
            assert weights[0, head, i].tolist() == pytest.approx(expected, abs=1e-6)


def test_half_precision_models_have_weights_in_single_precision() -> None:
    model = model_of("rope").bfloat16()
    for _, weights in attention_patterns(model, tokens()):
        assert weights.dtype == torch.float32
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 23))


def test_positions_that_are_drawn_are_the_same_for_the_weights_and_the_model() -> None:
    """In the second layer, whose queries already depend on the positions."""
    model = model_of("random-rope")
    torch.manual_seed(5)
    [_, (_, found)] = attention_patterns(model, tokens())
    torch.manual_seed(5)
    positions = embedding_of(model, 0).positions(23)
    [_, (_, q, k)] = record(model, tokens(), positions)
    expected = attention_weights(embedding_of(model, 1), q, k, positions)
    torch.testing.assert_close(found, expected)
