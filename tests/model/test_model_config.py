"""Sizes, parameter counts and FLOPs against the real module and the FoPE paper."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from gpt2_block import GPT2
from pydantic import TypeAdapter, ValidationError
from torch.utils.flop_counter import FlopCounterMode

from fope_lab.embeddings import Shape, parse_embedding
from fope_lab.model import SCALES, Decoder, ModelConfig, flops_per_token, parameters

GROUPED = ModelConfig(
    num_layers=3,
    num_heads=6,
    num_kv_heads=2,
    head_dim=8,
    hidden_size=40,
    intermediate_size=72,
    vocab_size=100,
)
CONFIGS = {
    **SCALES,
    "grouped": GROUPED,
    "tied": dataclasses.replace(GROUPED, tie_embeddings=True),
    "gpt2": dataclasses.replace(GROUPED, norm="layer", biases=True, feed_forward="gelu_tanh"),
    "biases and gates": dataclasses.replace(GROUPED, biases=True, qk_norm="rms"),
    "layer": dataclasses.replace(GROUPED, norm="layer", feed_forward="gelu", dropout=0.1),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_closed_form_counts_the_modules_parameters(name: str) -> None:
    config = CONFIGS[name]
    with torch.device("meta"):
        model = Decoder(config, "rope", train_length=512)
    counted = parameters(config)
    assert counted.total == sum(parameter.numel() for parameter in model.parameters())
    assert counted.embedding == model.embed_tokens.weight.numel()
    assert counted.head == (0 if config.tie_embeddings else model.lm_head.weight.numel())


@pytest.mark.parametrize(("scale", "millions"), [("60m", 59.3), ("180m", 185.7), ("1.2b", 1176.8)])
def test_the_papers_scales_count_without_the_input_embedding(scale: str, millions: float) -> None:
    counted = parameters(SCALES[scale])
    assert round((counted.body + counted.head) / 1e6, 1) == millions


@pytest.mark.parametrize(
    ("scale", "total"),
    [
        ("smollm-1.7b", 1_711_376_384),
        ("gemma-2b", 2_506_172_416),
        ("llama2-7b", 6_738_415_616),
        ("llama2-13b", 13_015_864_320),
    ],
)
def test_published_models_have_their_published_counts(scale: str, total: int) -> None:
    """As Hugging Face states them for the checkpoints' safetensors."""
    assert parameters(SCALES[scale]).total == total


def test_gpt2_has_its_published_count() -> None:
    """As Hugging Face states it for the checkpoint of GPT-2 small, with 1,024 learned positions."""
    config = ModelConfig(num_layers=12, num_heads=12, head_dim=64, vocab_size=50_257, **GPT2)
    shape = Shape(**config.head_sizes, train_length=1024)
    table = parse_embedding("learned").learned_parameters(shape, 12)
    assert parameters(config).total + table == 124_439_808


def test_sizes_left_out_are_filled_in() -> None:
    config = ModelConfig(num_layers=1, num_heads=4, head_dim=8)
    assert (config.num_kv_heads, config.hidden_size, config.intermediate_size) == (4, 32, 128)
    assert config == ModelConfig(
        num_layers=1, num_heads=4, head_dim=8, num_kv_heads=4, hidden_size=32
    )
    assert dataclasses.replace(config, vocab_size=7).vocab_size == 7


def test_validation_knows_the_bounds() -> None:
    adapter = TypeAdapter(ModelConfig)
    good = {"num_layers": 1, "num_heads": 4, "head_dim": 8}
    assert adapter.validate_python(good) == ModelConfig(**good)
    for wrong in ({"num_layers": 0}, {"num_kv_heads": 3}, {"norm_eps": 0}, {"head_dim": "x"}):
        with pytest.raises(ValidationError):
            adapter.validate_python(good | wrong)


@pytest.mark.parametrize("name", ["tiny", "grouped", "tied", "gpt2", "biases and gates"])
def test_flops_are_those_that_torch_counts(name: str) -> None:
    """Torch's counter takes no account of the causal mask, hence the plain attention term."""
    config, length = CONFIGS[name], 24
    model = Decoder(config, "nope", train_length=length)
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, length, dtype=torch.long)).logits.sum().backward()
    attention = 4 * config.num_layers * config.num_heads * config.head_dim
    counted_by_torch = counter.get_flop_counts()["Global"]
    products = sum(
        flops for kernel, flops in counted_by_torch.items() if "attention" not in str(kernel)
    )
    # The first layer's input needs a gradient too (of the embedding), so backward is twice forward.
    expected = flops_per_token(config, length) - 3 * attention * (length + 1) / 2
    assert products / length == pytest.approx(expected, rel=1e-12)


def test_attention_adds_the_mean_causal_context() -> None:
    config = SCALES["60m"]
    with torch.device("meta"):
        model = Decoder(config, "rope", train_length=512)
    matrices = sum(w.numel() for w in model.parameters() if w.dim() == 2)
    matrices -= model.embed_tokens.weight.numel()
    # Token n looks at n + 1 tokens: a product with each key, and one with each value.
    attended = [2 * config.num_heads * config.head_dim * (n + 1) for n in range(1024)]
    forward = 2 * matrices + 2 * config.num_layers * sum(attended) / 1024
    assert flops_per_token(config, 1024) == pytest.approx(3 * forward, rel=1e-12)
