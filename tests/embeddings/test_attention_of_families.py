"""Patterns, windows, sinks and scales against the attention of the models that have them.

Each layer of a small model of transformers attends by its own modules and its own masks; ours has
the same projections. What is no position (norms of queries and keys) is left out of theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hugging_face import rope_init
from torch import Tensor, nn
from transformers import (
    Cohere2Config,
    Gemma3TextConfig,
    GPTNeoXConfig,
    GptOssConfig,
    Llama4TextConfig,
    Olmo3Config,
    SmolLM3Config,
)
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask
from transformers.models.cohere2.modeling_cohere2 import Cohere2Attention, Cohere2RotaryEmbedding
from transformers.models.deepseek_v3.modeling_deepseek_v3 import yarn_apply_mscale
from transformers.models.gemma3.modeling_gemma3 import Gemma3Attention, Gemma3RotaryEmbedding
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXAttention, GPTNeoXRotaryEmbedding
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention, GptOssRotaryEmbedding
from transformers.models.llama4.modeling_llama4 import (
    Llama4TextAttention,
    Llama4TextRotaryEmbedding,
)
from transformers.models.olmo3.modeling_olmo3 import Olmo3Attention, Olmo3RotaryEmbedding
from transformers.models.smollm3.modeling_smollm3 import SmolLM3Attention, SmolLM3RotaryEmbedding

from fope_lab.embeddings import build_embedding, parse_embedding
from fope_lab.embeddings.base import Shape
from fope_lab.embeddings.module import QueryScaling
from fope_lab.model import ModelConfig
from fope_lab.model.attention import Attention

WIDTH, HEADS, KEY_HEADS, DIM, LENGTH, TRAINED, WINDOW = 64, 4, 2, 16, 90, 48, 11
SIZES: dict[str, Any] = {
    "hidden_size": WIDTH,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEY_HEADS,
    "head_dim": DIM,
    "max_position_embeddings": 192,
    "attention_bias": False,
}
CONFIG = ModelConfig(
    num_layers=1, num_heads=HEADS, num_kv_heads=KEY_HEADS, head_dim=DIM, vocab_size=90
)
DEFAULT = {"rope_type": "default", "rope_theta": 10_000.0}


@dataclass(frozen=True)
class Family:
    """A model of transformers, and the embedding that we say it has."""

    spec: Any
    config: Any
    attention: Any
    rotary: Any
    layers: int
    interleaved: bool = False
    """Whether a pair is two dimensions beside each other."""
    by_type: bool = False
    """Whether kinds of layers have rotations of their own."""


def families() -> dict[str, Callable[[], Family]]:
    windowed = {"sliding_window": WINDOW}
    return {
        "rnope-swa": lambda: Family(
            {"type": "rnope-swa", "window": WINDOW},
            Cohere2Config(
                **SIZES, **windowed, num_hidden_layers=4, rope_parameters=DEFAULT,
                layer_types=["sliding_attention"] * 3 + ["full_attention"],
            ),
            Cohere2Attention, Cohere2RotaryEmbedding, 4, interleaved=True,
        ),
        "irope": lambda: Family(
            {
                "type": "layered",
                "pattern": [
                    *["rope"] * 3,
                    {"type": "nope", "query_scale": {"type": "temperature", "floor": 16}},
                ],
            },
            Llama4TextConfig(
                **SIZES, num_hidden_layers=4, rope_parameters=DEFAULT, use_qk_norm=False,
                attn_temperature_tuning=True, attn_scale=0.1, floor_scale=16,
                no_rope_layers=[1, 1, 1, 0],
            ),
            Llama4TextAttention, Llama4TextRotaryEmbedding, 4, interleaved=True,
        ),
        "smollm3": lambda: Family(
            "smollm3",
            SmolLM3Config(
                **SIZES, num_hidden_layers=8, rope_parameters=DEFAULT, use_sliding_window=False,
            ),
            SmolLM3Attention, SmolLM3RotaryEmbedding, 8,
        ),
        "gemma3": lambda: Family(
            {"type": "gemma3", "window": WINDOW},
            Gemma3TextConfig(
                **SIZES, **windowed, num_hidden_layers=6, query_pre_attn_scalar=DIM,
                rope_parameters={
                    "sliding_attention": DEFAULT,
                    "full_attention": {
                        "rope_type": "linear", "rope_theta": 1_000_000.0, "factor": 8.0
                    },
                },
            ),
            Gemma3Attention, Gemma3RotaryEmbedding, 6, by_type=True,
        ),
        "olmo3": lambda: Family(
            {"type": "olmo3", "window": WINDOW, "factor": 4.0},
            Olmo3Config(
                **SIZES, **windowed, num_hidden_layers=4,
                rope_parameters={
                    "sliding_attention": {"rope_type": "default", "rope_theta": 500_000.0},
                    "full_attention": {
                        "rope_type": "yarn", "rope_theta": 500_000.0, "factor": 4.0,
                        "original_max_position_embeddings": TRAINED,
                    },
                },
            ),
            Olmo3Attention, Olmo3RotaryEmbedding, 4, by_type=True,
        ),
        "sink": lambda: Family(
            {"type": "layered", "pattern": [{"embedding": "sink", "window": WINDOW}, "sink"]},
            GptOssConfig(**SIZES, **windowed, num_hidden_layers=2, rope_parameters=DEFAULT),
            GptOssAttention, GptOssRotaryEmbedding, 2,
        ),
    }  # fmt: skip


def in_halves(weight: Tensor) -> Tensor:
    """The rows of heads whose pairs lie beside each other, as ours has them: i and i + d/2."""
    return weight.unflatten(0, (-1, DIM // 2, 2)).transpose(1, 2).flatten(0, 2)


@torch.no_grad()
@pytest.mark.parametrize("name", families())
def test_each_layer_attends_as_its_family(name: str) -> None:
    family = families()[name]()
    family.config._attn_implementation = "eager"
    torch.manual_seed(0)
    hidden, places = torch.randn(2, LENGTH, WIDTH), torch.arange(LENGTH)[None]
    rotary = family.rotary(family.config)
    shape = Shape(head_dim=DIM, num_heads=HEADS, num_kv_heads=KEY_HEADS, train_length=TRAINED)
    given = {
        "config": family.config,
        "inputs_embeds": hidden,
        "attention_mask": None,
        "past_key_values": None,
        "position_ids": places,
    }
    masks = {"full_attention": create_causal_mask(**given)}
    if any(plan.window for plan in parse_embedding(family.spec).layers(family.layers)):
        masks["sliding_attention"] = create_sliding_window_causal_mask(**given)
    for index, plan in enumerate(parse_embedding(family.spec).layers(family.layers)):
        kind = (getattr(family.config, "layer_types", None) or ["full_attention"] * 99)[index]
        kind = kind if kind in masks else "full_attention"  # Llama 4's chunks are no position
        theirs = family.attention(family.config, index).eval()
        for norm in ("q_norm", "k_norm"):
            if hasattr(theirs, norm):
                setattr(theirs, norm, nn.Identity())
        ours = Attention(CONFIG).eval()
        position = build_embedding(
            plan.embedding, head_dim=DIM, num_heads=HEADS, num_kv_heads=KEY_HEADS,
            train_length=TRAINED,
        )  # fmt: skip
        for parameter in theirs.parameters():
            parameter.copy_(torch.randn_like(parameter) / 8)
        for projection in ("q_proj", "k_proj", "v_proj", "o_proj"):
            weight = getattr(theirs, projection).weight
            turns = family.interleaved and projection in ("q_proj", "k_proj")
            getattr(ours, projection).weight.copy_(in_halves(weight) if turns else weight)
        if hasattr(theirs, "sinks"):
            position.sink.copy_(theirs.sinks)
        turn = rotary(hidden, places, kind) if family.by_type else rotary(hidden, places)
        expected = theirs(hidden, position_embeddings=turn, attention_mask=masks[kind])[0]
        scale = plan.embedding.query_scale
        scaling = None if scale is None else QueryScaling(scale, shape)
        at = position.places(places[0], steps=True)
        found = ours(hidden, position, at, None, plan.window, scaling)
        torch.testing.assert_close(found, expected, rtol=0, atol=2e-6, msg=f"layer {index}")


@torch.no_grad()
def test_a_partial_rotation_is_gpt_neoxs() -> None:
    config = GPTNeoXConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, num_hidden_layers=1,
        rope_parameters={**DEFAULT, "partial_rotary_factor": 0.25}, attention_bias=False,
    )  # fmt: skip
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    theirs = GPTNeoXAttention(config, 0).eval()
    for parameter in theirs.parameters():
        parameter.copy_(torch.randn_like(parameter) / 8)
    ours = Attention(ModelConfig(num_layers=1, num_heads=HEADS, head_dim=DIM, vocab_size=90)).eval()
    q, k, v = theirs.query_key_value.weight.unflatten(0, (HEADS, 3, DIM)).unbind(1)
    for projection, weight in (("q_proj", q), ("k_proj", k), ("v_proj", v)):
        getattr(ours, projection).weight.copy_(weight.flatten(0, 1))
    ours.o_proj.weight.copy_(theirs.dense.weight)
    position = build_embedding("partial", head_dim=DIM, num_heads=HEADS, train_length=TRAINED)
    hidden, places = torch.randn(2, LENGTH, WIDTH), torch.arange(LENGTH)[None]
    mask = create_causal_mask(config, hidden, None, None, places)
    turn = GPTNeoXRotaryEmbedding(config)(hidden, places)
    expected = theirs(hidden, attention_mask=mask, position_embeddings=turn)[0]
    found = ours(hidden, position, position.places(places[0], steps=True))
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("gains", [(1.0, 1.0), (0.707, 0.707), (0.8, 0.4)])
def test_yarns_scales_are_deepseeks(gains: tuple[float, float]) -> None:
    """One of the dimensions that rotate, here half of them, and one of all logits."""
    options = {"factor": 8.0, **dict(zip(("mscale", "mscale_all_dim"), gains, strict=True))}
    position = build_embedding(
        {"type": "rotary", "fraction": 0.5, "transforms": [{"type": "yarn", **options}]},
        head_dim=DIM, num_heads=1, train_length=TRAINED,
    ).double()  # fmt: skip
    original = {"rope_theta": 10_000.0, "original_max_position_embeddings": TRAINED}
    frequencies, scale = rope_init("yarn", DIM // 2, 8 * TRAINED, **original, **options)
    q, k = torch.randn(2, 1, 1, LENGTH, DIM, dtype=torch.float64)
    turn = torch.polar(
        torch.tensor(scale).double(), torch.arange(LENGTH).double()[:, None] * frequencies.double()
    )

    def turned(x: Tensor) -> Tensor:
        found = torch.complex(x[..., : DIM // 4], x[..., DIM // 4 : DIM // 2]) * turn
        return torch.cat((found.real, found.imag, x[..., DIM // 2 :]), dim=-1)

    expected = (
        turned(q) @ turned(k).mT * yarn_apply_mscale({"rope_type": "yarn", **options}, DIM**-0.5)
    )
    at = position.places(torch.arange(LENGTH))
    found = position.scores(q, position.streams(q, q, k, at), at)
    logits = found.q @ found.k.mT * DIM**-0.5
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)
