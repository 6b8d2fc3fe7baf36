"""Sinusoidal positions against §3.5 of the Transformer paper."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fope_lab.embeddings import build_embedding
from fope_lab.embeddings.module import PositionEmbedding
from fope_lab.model import Decoder, ModelConfig


def sinusoidal(**options: object) -> PositionEmbedding:
    return build_embedding(
        {"type": "sinusoidal", **options}, head_dim=8, num_heads=2, train_length=64
    )


def waves(positions: Tensor, width: int, **options: object) -> Tensor:
    """What is added to token embeddings of that width."""
    hidden = torch.zeros(*torch.broadcast_shapes(positions.shape, (1, 1)), width)
    return sinusoidal(**options).embed(hidden, positions)


def closed_form(position: int, dimension: int, width: int, base: float = 10_000.0) -> float:
    angle = position / base ** (2 * (dimension // 2) / width)
    return math.cos(angle) if dimension % 2 else math.sin(angle)


@pytest.mark.parametrize("width", [1, 2, 5, 16, 31])
@pytest.mark.parametrize("base", [10_000.0, 129.0])
def test_what_is_added_is_the_closed_form(width: int, base: float) -> None:
    """An odd width ends with a sine. Also where an angle of float32 would be far off."""
    positions = [0, 1, 2, 63, 5000, 1_000_003]
    expected = [[closed_form(n, d, width, base) for d in range(width)] for n in positions]
    torch.testing.assert_close(
        waves(torch.tensor(positions), width, base=base),
        torch.tensor([expected]),
        rtol=0,
        atol=1e-7,
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("autocast", [False, True])
def test_the_sum_is_rounded_once(dtype: torch.dtype, autocast: bool) -> None:
    hidden = torch.randn(1, 50, 16).to(dtype)
    positions = torch.arange(1000, 1050)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        added = sinusoidal().embed(hidden, positions)
    assert added.dtype == dtype
    wide = torch.promote_types(dtype, torch.float32)
    assert torch.equal(added, (hidden.to(wide) + waves(positions, 16)).to(dtype))


def test_a_decoder_adds_it_to_the_token_embeddings_once() -> None:
    config = ModelConfig(num_layers=2, num_heads=2, head_dim=8, vocab_size=20)
    model, plain = (
        Decoder(config, name, train_length=64, seed=1).eval() for name in ("sinusoidal", "nope")
    )
    tokens = torch.arange(10)[None]
    positions = torch.arange(30, 40)
    added = waves(positions, config.hidden_size)
    plain.embed_tokens.register_forward_hook(lambda module, inputs, output: output + added)
    with torch.no_grad():
        assert torch.equal(model(tokens, positions).logits, plain(tokens).logits)
        assert not torch.allclose(model(tokens).logits, plain(tokens).logits)
