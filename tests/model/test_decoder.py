"""The decoder: its weights, and what embeddings may not change. For parity see huggingface/."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from fope_lab.embeddings import EmbeddingError
from fope_lab.model import Decoder, ModelConfig

CONFIG = ModelConfig(num_layers=3, num_heads=4, head_dim=16, vocab_size=90)
EMBEDDINGS: list[Any] = [
    "nope",
    "rope",
    "alibi",
    {"type": "fope", "base": 129},
    {"type": "yarn", "factor": 4},
]


def tokens(batch: int = 2, length: int = 50) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, CONFIG.vocab_size, (batch, length), generator=generator)


def test_weights_follow_from_the_seed_and_leave_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    one, other = (Decoder(CONFIG, "fope", train_length=64, seed=seed) for seed in (5, 6))
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(one.embed_tokens.weight, other.embed_tokens.weight)


def test_weights_start_at_their_deviations() -> None:
    config = dataclasses.replace(CONFIG, num_layers=8, vocab_size=2000)
    model = Decoder(config, "rope", train_length=64)
    for name, weight in model.named_parameters():
        if "norm" in name:
            assert (weight == 1).all()
            continue
        residual = name.endswith(("o_proj.weight", "down_proj.weight"))
        assert weight.std().item() == pytest.approx(0.02 / (4 if residual else 1), rel=0.05)


@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_positions_may_be_given(embedding: Any) -> None:
    model = Decoder(CONFIG, embedding, train_length=64)
    ids = tokens()
    counted = model(ids).logits
    torch.testing.assert_close(model(ids, torch.arange(50)).logits, counted)
    torch.testing.assert_close(model(ids, torch.arange(50).expand(2, 50)).logits, counted)
    stretched = model(ids, 3 * torch.arange(50)).logits
    assert torch.equal(stretched, counted) == (embedding == "nope")


@pytest.mark.parametrize("index", range(CONFIG.num_layers))
def test_every_layer_uses_its_own_coefficients(index: int) -> None:
    model = Decoder(CONFIG, {"type": "fope", "base": 129}, train_length=64)
    before = model(tokens()).logits
    model.position_embeddings[index].cos_coef.mul_(2)
    assert (model(tokens()).logits - before).abs().max() > 1e-4


def test_hidden_states_and_head_make_the_logits() -> None:
    model = Decoder(CONFIG, "rope", train_length=64)
    hidden = model.hidden(tokens())
    assert hidden.shape == (2, 50, CONFIG.hidden_size)
    assert torch.equal(model.head(hidden), model(tokens()).logits)


@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_a_bfloat16_model_keeps_its_tables_and_stays_near(embedding: Any) -> None:
    model = Decoder(CONFIG, embedding, train_length=64)
    ids = tokens()
    with torch.no_grad():
        wide = model(ids).logits
        with torch.autocast("cpu", torch.bfloat16):
            cast = model(ids).logits
        model.to(torch.bfloat16)
        narrow = model(ids).logits
    for embedding_module in model.position_embeddings:
        exact = (torch.float32, torch.float64)
        assert all(buffer.dtype in exact for buffer in embedding_module.buffers())
    assert narrow.dtype == torch.bfloat16
    scale = wide.std()
    assert (narrow.float() - wide).std() < 0.02 * scale
    assert (cast.float() - wide).std() < 0.02 * scale


def test_what_does_not_fit_is_refused() -> None:
    odd = dataclasses.replace(CONFIG, head_dim=15)
    with pytest.raises(EmbeddingError, match="head_dim 15 is odd"):
        Decoder(odd, "rope", train_length=64)
    Decoder(odd, "alibi", train_length=64)
