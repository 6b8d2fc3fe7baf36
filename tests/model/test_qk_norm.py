"""QK-norm against its definition, and in a decoder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from fope_lab.embeddings import build_embedding
from fope_lab.model import Decoder, ModelConfig, flops_per_token, load_model, parameters, save_model
from fope_lab.model.attention import Attention
from fope_lab.model.layers import QK_NORMS

SIZES = {"num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "head_dim": 16, "vocab_size": 50}
CONFIG = ModelConfig(**SIZES, norm_eps=1e-5)


def standardised(x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def test_layer_standardises_each_head_and_learns_nothing() -> None:
    norm = QK_NORMS["layer"](4, CONFIG)
    x = torch.randn(2, 7, 64, dtype=torch.float64)
    expected = standardised(x.view(2, 7, 4, 16)).view(2, 7, 64)
    torch.testing.assert_close(norm(x), expected)
    assert not list(norm.parameters())


def test_rms_is_over_all_heads_and_learns_a_gain() -> None:
    norm = QK_NORMS["rms"](4, CONFIG).double()
    x = torch.randn(2, 7, 64, dtype=torch.float64)
    gain = torch.randn(64, dtype=torch.float64)
    [parameter] = norm.parameters()
    assert torch.equal(parameter, torch.ones_like(parameter))
    parameter.data.copy_(gain)
    expected = gain * x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(norm(x), expected)


@pytest.mark.parametrize("norm", ["rms", "shifted_rms"])
def test_head_rms_is_of_each_head_with_one_gain(norm: str) -> None:
    config = ModelConfig(**SIZES, norm=norm, norm_eps=1e-5)  # type: ignore[arg-type]
    of = QK_NORMS["head_rms"](4, config).double()
    x = torch.randn(2, 7, 4, 16, dtype=torch.float64)
    gain = torch.randn(16, dtype=torch.float64)
    [parameter] = of.parameters()
    parameter.data.copy_(gain if norm == "rms" else gain - 1)
    expected = gain * x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(of(x.flatten(2)), expected.flatten(2))


@pytest.mark.parametrize("qk_norm", ["layer", "rms", "head_rms"])
@pytest.mark.parametrize("embedding", ["rope", "fope", "alibi"])
def test_scores_do_not_depend_on_the_scale_of_queries_and_keys(
    qk_norm: str, embedding: str
) -> None:
    config = ModelConfig(**SIZES, qk_norm=qk_norm)  # type: ignore[arg-type]
    model, plain = (Decoder(c, embedding, train_length=64) for c in (config, ModelConfig(**SIZES)))
    tokens = torch.arange(40).expand(2, 40)
    with torch.no_grad():
        before = [m(tokens).logits for m in (model, plain)]
        for m in (model, plain):
            for layer in m.layers:
                layer.self_attn.q_proj.weight.mul_(100)  # type: ignore[union-attr]
                layer.self_attn.k_proj.weight.mul_(100)  # type: ignore[union-attr]
        after = [m(tokens).logits for m in (model, plain)]
    torch.testing.assert_close(after[0], before[0], rtol=0, atol=2e-3)
    assert (after[1] - before[1]).abs().max() > 0.01


@pytest.mark.parametrize("qk_norm", ["none", "layer", "rms", "head_rms"])
def test_it_is_counted_and_saved(qk_norm: str, tmp_path: Path) -> None:
    config = ModelConfig(**SIZES, qk_norm=qk_norm)  # type: ignore[arg-type]
    model = Decoder(config, "rope", train_length=64)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "_norm" in name:
                parameter.uniform_(0.5, 2)
    assert parameters(config).total == sum(p.numel() for p in model.parameters())
    save_model(tmp_path, model, context_length=64, tokenizer="byte")
    tokens = torch.arange(40).expand(2, 40)
    assert torch.equal(load_model(tmp_path)(tokens).logits, model.eval()(tokens).logits)


def test_models_that_differ_in_it_start_with_equal_projections() -> None:
    one, other = (
        Decoder(ModelConfig(**SIZES, qk_norm=name), "rope", train_length=64).state_dict()  # type: ignore[arg-type]
        for name in ("none", "head_rms")
    )
    assert all(torch.equal(other[name], weight) for name, weight in one.items())


@pytest.mark.parametrize("qk_norm", ["layer", "rms"])
def test_it_comes_before_the_rotation(qk_norm: str) -> None:
    config = ModelConfig(**SIZES, qk_norm=qk_norm)  # type: ignore[arg-type]
    embedding = build_embedding("fope", head_dim=16, num_heads=4, num_kv_heads=2, train_length=64)
    layer = Attention(config).double()
    for projection in (layer.q_proj, layer.k_proj, layer.v_proj, layer.o_proj):
        torch.nn.init.normal_(projection.weight, std=0.3)
    hidden, positions = torch.randn(1, 20, 64, dtype=torch.float64), torch.arange(20)

    def by_head(x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, 16)).transpose(1, 2)

    def normed(x: Tensor) -> Tensor:
        if qk_norm == "layer":
            return standardised(by_head(x))
        return by_head(x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt())

    q, k = embedding.rotate(normed(layer.q_proj(hidden)), normed(layer.k_proj(hidden)), positions)
    v = by_head(layer.v_proj(hidden))
    mixed = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=True, enable_gqa=True
    )
    expected = layer.o_proj(mixed.transpose(1, 2).flatten(2))
    ours = layer(hidden, embedding, embedding.places(positions))
    torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("qk_norm", ["layer", "rms", "head_rms"])
def test_it_adds_no_flops(qk_norm: str) -> None:
    config = ModelConfig(**SIZES, qk_norm=qk_norm)  # type: ignore[arg-type]
    assert flops_per_token(config, 128) == flops_per_token(ModelConfig(**SIZES), 128)
