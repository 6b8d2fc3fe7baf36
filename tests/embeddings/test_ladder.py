"""The ladder of RoPE against Hugging Face, and transforms in their order against the definition."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hugging_face import llama_config
from ladders import ladder_of
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from fope_lab.embeddings import build_embedding
from fope_lab.embeddings.clip_floor import ClipFloor
from fope_lab.embeddings.frequencies import rope_ladder
from fope_lab.embeddings.yarn import Yarn


@pytest.mark.parametrize("base", [129.0, 10_000.0, 500_000.0])
@pytest.mark.parametrize("head_dim", [2, 32, 128])
def test_rope_is_hugging_faces(base: float, head_dim: int) -> None:
    config = llama_config(head_dim, 512, rope_type="default", rope_theta=base)
    embedding = build_embedding(
        {"type": "rope", "base": base}, head_dim=head_dim, num_heads=4, train_length=512
    )
    torch.testing.assert_close(
        embedding.inv_freq.float(), LlamaRotaryEmbedding(config).inv_freq, rtol=1e-6, atol=0
    )
    assert embedding.attention_factor == 1.0


def test_a_ladder_has_its_zeros_last() -> None:
    with pytest.raises(ValueError, match="rotates after"):
        ladder_of(1.0, 0.0, 0.5)


def test_transforms_apply_in_order() -> None:
    def frequencies(*transforms: Any) -> list[float]:
        embedding = build_embedding(
            {"type": "rotary", "transforms": list(transforms)},
            head_dim=64,
            num_heads=4,
            train_length=512,
        )
        return embedding.inv_freq.tolist()

    yarn = {"type": "yarn", "factor": 4}
    clipped_first = frequencies("clip_floor", yarn)
    clipped_last = frequencies(yarn, "clip_floor")
    assert clipped_first.count(0) < clipped_last.count(0)  # YaRN moves some below the floor
    ladder = rope_ladder(64, base=10_000.0, train_length=512)
    by_hand = Yarn(factor=4.0).apply(ClipFloor().apply(ladder)).frequencies
    assert clipped_first == list(by_hand)
