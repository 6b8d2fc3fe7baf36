"""GPT-2's block against transformers, and nanoGPT's without biases against its definition."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import gpt2_block
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from plain_softmax import causal_attention
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from fope_lab.model import Decoder, ModelConfig
from fope_lab.model.block_attention import chunked_attention
from fope_lab.model.scores import PairBias
from fope_lab.model.seen import Seen

LENGTH = 40
GPT2 = ModelConfig(num_layers=3, num_heads=4, head_dim=8, vocab_size=50, **gpt2_block.GPT2)
NANO_GPT = dataclasses.replace(GPT2, biases=False, feed_forward="gelu")


def tokens(batch: int = 2) -> Tensor:
    return torch.randint(50, (batch, LENGTH), generator=torch.Generator().manual_seed(0))


def mean_loss(logits: Tensor, ids: Tensor) -> Tensor:
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


@torch.no_grad()
def randomized(model: torch.nn.Module) -> None:
    """No weight at a value that hides what it does, such as a bias of 0."""
    for parameter in model.parameters():
        parameter.normal_(0.5, 0.5) if parameter.dim() == 1 else parameter.normal_(0.0, 0.1)


def from_transformers(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The decoder's tensors, from the names and the transposed matrices of transformers."""
    names = {
        "ln_1": "input_layernorm",
        "ln_2": "post_attention_layernorm",
        "attn.c_proj": "self_attn.o_proj",
        "mlp.c_fc": "mlp.up_proj",
        "mlp.c_proj": "mlp.down_proj",
    }
    found = {
        "embed_tokens.weight": state["transformer.wte.weight"],
        "lm_head.weight": state["transformer.wte.weight"],
        "position_embeddings.0.by_position": state["transformer.wpe.weight"],
        "norm.weight": state["transformer.ln_f.weight"],
        "norm.bias": state["transformer.ln_f.bias"],
    }
    for layer in range(GPT2.num_layers):
        theirs, ours = f"transformer.h.{layer}.", f"layers.{layer}."
        for kind in ("weight", "bias"):
            for old, new in names.items():
                tensor = state[f"{theirs}{old}.{kind}"]
                found[f"{ours}{new}.{kind}"] = tensor.T if tensor.dim() == 2 else tensor
            parts = state[f"{theirs}attn.c_attn.{kind}"].chunk(3, dim=-1)
            for name, part in zip("qkv", parts, strict=True):
                found[f"{ours}self_attn.{name}_proj.{kind}"] = part.T if part.dim() == 2 else part
    return found


def test_logits_and_gradients_are_those_of_transformers_gpt2() -> None:
    theirs = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=GPT2.vocab_size,
            n_positions=64,
            n_embd=GPT2.hidden_size,
            n_layer=GPT2.num_layers,
            n_head=GPT2.num_heads,
        )
    ).double()
    theirs.eval()
    randomized(theirs)
    ours = Decoder(GPT2, "learned", train_length=64).double()
    ours.load_state_dict(from_transformers(theirs.state_dict()))
    ids = tokens()
    expected, found = theirs(ids).logits, ours(ids).logits
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    mean_loss(expected, ids).backward()
    mean_loss(found, ids).backward()
    gradients = {name: p.grad for name, p in theirs.named_parameters()}
    for name, gradient in from_transformers(gradients).items():
        if name != "lm_head.weight":  # the token table's
            own = ours.get_parameter(name).grad
            torch.testing.assert_close(own, gradient, rtol=1e-9, atol=1e-12, msg=name)


def nano_gpt(state: dict[str, Tensor], ids: Tensor) -> Tensor:
    """The logits of nanoGPT's model with `bias: false`, each product written out."""

    def normed(x: Tensor, name: str) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return state[f"{name}.weight"] * centred / (centred.square().mean(-1, True) + 1e-5).sqrt()

    def mapped(x: Tensor, name: str) -> Tensor:
        return torch.einsum("bti,oi->bto", x, state[f"{name}.weight"])

    def by_head(x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:2], NANO_GPT.num_heads, NANO_GPT.head_dim)

    x = state["embed_tokens.weight"][ids]
    x = x + state["position_embeddings.0.by_position"][: ids.shape[1]]
    for layer in range(NANO_GPT.num_layers):
        at = f"layers.{layer}."
        h = normed(x, f"{at}input_layernorm")
        q, k, v = (by_head(mapped(h, f"{at}self_attn.{name}_proj")) for name in "qkv")
        scores = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(NANO_GPT.head_dim)
        later = torch.ones(ids.shape[1], ids.shape[1]).triu(1).bool()
        weights = scores.masked_fill(later, -math.inf).softmax(-1)
        mixed = torch.einsum("bhts,bshd->bthd", weights, v).flatten(2)
        x = x + mapped(mixed, f"{at}self_attn.o_proj")
        h = mapped(normed(x, f"{at}post_attention_layernorm"), f"{at}mlp.up_proj")
        h = h * (1 + (h / math.sqrt(2)).erf()) / 2
        x = x + mapped(h, f"{at}mlp.down_proj")
    return normed(x, "norm") @ state["embed_tokens.weight"].T


def test_without_biases_it_is_nano_gpts() -> None:
    model = Decoder(NANO_GPT, "learned", train_length=LENGTH).double()
    randomized(model)
    assert not any(name.endswith("bias") for name, _ in model.named_parameters())
    logits = model(tokens()).logits
    torch.testing.assert_close(logits, nano_gpt(model.state_dict(), tokens()), rtol=0, atol=1e-10)


@pytest.mark.parametrize("feed_forward", ["swiglu", "gelu_tanh"])
@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_biases_start_at_0_and_weights_as_without_them(norm: Any, feed_forward: Any) -> None:
    config = dataclasses.replace(GPT2, norm=norm, feed_forward=feed_forward)
    with_biases = Decoder(config, "rope", train_length=64, seed=3)
    without = Decoder(dataclasses.replace(config, biases=False), "rope", train_length=64, seed=3)
    started = dict(with_biases.named_parameters())
    for name, parameter in without.named_parameters():
        assert torch.equal(parameter, started.pop(name)), name
    assert started
    assert all(name.endswith(".bias") and not p.any() for name, p in started.items())


def draws(model: Decoder, count: int) -> Tensor:
    """The logits of the last token under as many draws of the dropout: (count, vocabulary)."""
    ids = tokens(1)
    return torch.cat([model(ids).logits[:, -1] for _ in range(count)])


@pytest.mark.parametrize("embedding", ["learned", "rope", "alibi", "fire"])
def test_dropout_is_for_training_and_drawn_each_time(embedding: str) -> None:
    config = dataclasses.replace(GPT2, dropout=0.2)
    model = Decoder(config, embedding, train_length=LENGTH)
    plain = Decoder(GPT2, embedding, train_length=LENGTH)
    with torch.no_grad():
        first, second = draws(model.train(), 2)
        assert not torch.allclose(first, second)
        assert torch.equal(draws(model.eval(), 1), draws(plain.train(), 1))


@pytest.mark.parametrize("embedding", ["rope", "alibi", "fire"])
def test_dropout_of_weights_keeps_their_mean(embedding: str) -> None:
    """With values of one each, a result is the sum of the weights that remain."""
    model = Decoder(GPT2, embedding, train_length=LENGTH)
    module: Any = model.position_embeddings[0]
    q, k = torch.randn(2, 500, 4, LENGTH, 8)
    v, positions = torch.ones(500, 4, LENGTH, 8), torch.arange(LENGTH)
    with torch.no_grad():
        whole = causal_attention(q, k, v, positions, module)
        mixed = causal_attention(q, k, v, positions, module, dropout=0.25)
    torch.testing.assert_close(whole, torch.ones_like(whole))
    assert mixed[..., 0, 0].unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert (mixed[..., 0, 0] == 0).float().mean().item() == pytest.approx(0.25, abs=0.04)
    assert mixed[..., 1:, 0].mean().item() == pytest.approx(1, abs=0.01)


def test_attention_with_a_bias_has_the_gradients_of_the_weights_that_remain() -> None:
    """What is dropped is read off the results of values that tell the keys apart."""
    module: Any = Decoder(GPT2, "fire", train_length=LENGTH).position_embeddings[0]
    length = 8
    q, k, v = torch.randn(3, 1, 4, length, 8, dtype=torch.float64)
    one_hot = torch.eye(length, dtype=torch.float64).expand(1, 4, -1, -1)
    positions = torch.arange(length)
    module.double()
    bias = PairBias(module.definition, module.shape, module._tensors(), positions)
    results = []
    for values, dropout in ((one_hot, 0.0), (one_hot, 0.5), (v, 0.5)):
        torch.manual_seed(7)
        leaves = [x.clone().requires_grad_() for x in (q, k, values)]
        results.append((leaves, chunked_attention(*leaves, bias, Seen(length, length), dropout)))
    weights, dropped = results[0][1].detach(), results[1][1].detach()
    factors = torch.where(weights > 0, dropped / weights, 0.0)
    assert set(factors[weights > 0].round(decimals=9).unique().tolist()) == {0.0, 2.0}
    exact = [x.clone().requires_grad_() for x in (q, k, v)]
    full = module.bias(positions, positions).masked_fill(torch.ones(8, 8).triu(1).bool(), -math.inf)
    softmax = (exact[0] @ exact[1].mT / math.sqrt(8) + full).softmax(-1)
    expected = (softmax * factors) @ exact[2]
    leaves, found = results[2]
    torch.testing.assert_close(found, expected)
    learned = list(module.parameters())
    probe = torch.randn_like(expected)
    ours = torch.autograd.grad((found * probe).sum(), [*leaves, *learned])
    theirs = torch.autograd.grad((expected * probe).sum(), [*exact, *learned])
    for gradient, reference in zip(ours, theirs, strict=True):
        torch.testing.assert_close(gradient, reference, rtol=1e-6, atol=1e-9)
