"""Ladders and their transforms against Hugging Face and against their definitions."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hugging_face import llama_config
from hypothesis import given
from hypothesis import strategies as st
from ladders import ladder_of
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from fope_lab.embeddings import build_embedding
from fope_lab.embeddings.frequencies import ClipFloor, rope_ladder
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


@given(
    head_dim=st.sampled_from([2, 8, 32, 64]),
    base=st.floats(2, 1e6),
    length=st.integers(1, 100_000),
)
def test_clip_floor_keeps_exactly_the_pairs_that_finish_a_cycle(
    head_dim: int, base: float, length: int
) -> None:
    ladder = rope_ladder(head_dim, base=base, train_length=length)
    clipped = ClipFloor().apply(ladder)
    for before, after in zip(ladder.frequencies, clipped.frequencies, strict=True):
        assert after == (0 if before < 2 * math.pi / length else before)
    assert clipped.rotating == sum(omega > 0 for omega in clipped.frequencies)


def test_clip_floor_is_strict() -> None:
    floor = 2 * math.pi / 64
    below = math.nextafter(floor, 0)
    ladder = ladder_of(1.0, floor, below)
    assert ClipFloor().apply(ladder).frequencies == (1.0, floor, 0.0)


def test_clip_floor_takes_its_original_length() -> None:
    ladder = rope_ladder(64, base=10_000.0, train_length=2048)
    short = rope_ladder(64, base=10_000.0, train_length=64)
    at_64 = ClipFloor(original_length=64).apply(ladder).frequencies
    assert at_64 == ClipFloor().apply(short).frequencies
    assert at_64 != ClipFloor().apply(ladder).frequencies


@pytest.mark.parametrize(("base", "length"), [(129, 64), (549, 128), (2344, 256)])
def test_half_of_the_pairs_stay_at_the_bases_for_miniatures(base: float, length: int) -> None:
    ladder = ClipFloor().apply(rope_ladder(64, base=base, train_length=length))
    assert ladder.rotating == pytest.approx(16, abs=1)


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
        assert embedding.inv_freq is not None
        return embedding.inv_freq.tolist()

    yarn = {"type": "yarn", "factor": 4}
    clipped_first = frequencies("clip_floor", yarn)
    clipped_last = frequencies(yarn, "clip_floor")
    assert clipped_first.count(0) < clipped_last.count(0)  # YaRN moves some below the floor
    ladder = rope_ladder(64, base=10_000.0, train_length=512)
    by_hand = Yarn(factor=4.0).apply(ClipFloor().apply(ladder)).frequencies
    assert clipped_first == list(by_hand)
