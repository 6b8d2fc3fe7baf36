"""ALiBi's slopes against Hugging Face's builder and closed forms, and its bias."""

from __future__ import annotations

import math

import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from fope_lab.embeddings import build_embedding


@pytest.mark.parametrize("num_heads", [*range(1, 18), 32, 40])
def test_official_slopes_are_hugging_faces(num_heads: int) -> None:
    embedding = build_embedding("alibi", head_dim=8, num_heads=num_heads, train_length=64)
    theirs = build_alibi_tensor(torch.ones(1, 2), num_heads, torch.float32)
    torch.testing.assert_close(embedding.slopes, theirs[:, 0, 1], rtol=2e-6, atol=0)


@pytest.mark.parametrize("num_heads", [1, 6, 8, 12])
def test_geometric_slopes_run_down_to_a_256th(num_heads: int) -> None:
    embedding = build_embedding(
        {"type": "alibi", "slopes": "geometric"}, head_dim=8, num_heads=num_heads, train_length=64
    )
    slopes = embedding.slopes.tolist()
    assert slopes[-1] == pytest.approx(1 / 256)
    ratios = [math.log2(slope) * num_heads for slope in slopes]
    assert ratios == pytest.approx([-8.0 * (head + 1) for head in range(num_heads)])


def test_both_rules_agree_on_powers_of_two() -> None:
    for num_heads in (1, 2, 4, 8, 16):
        official, geometric = (
            build_embedding(
                {"type": "alibi", "slopes": rule},
                head_dim=8,
                num_heads=num_heads,
                train_length=64,
            ).slopes
            for rule in ("official", "geometric")
        )
        assert torch.equal(official, geometric)


def test_the_bias_falls_with_the_distance() -> None:
    embedding = build_embedding("alibi", head_dim=8, num_heads=4, train_length=64)
    bias = embedding.bias(torch.tensor([5, 9]), torch.tensor([0, 5, 9]))
    assert bias is not None
    assert bias.dtype == torch.float32
    slopes = [1 / 4, 1 / 16, 1 / 64, 1 / 256]
    expected = [[[-5 * m, 0, -4 * m], [-9 * m, -4 * m, 0]] for m in slopes]
    assert torch.equal(bias, torch.tensor(expected))


def test_sequences_with_positions_of_their_own_have_their_own_bias() -> None:
    embedding = build_embedding("alibi", head_dim=8, num_heads=4, train_length=64)
    positions = torch.tensor([[0, 1, 2], [4, 9, 30]])
    bias = embedding.bias(positions, positions)
    assert bias is not None
    assert bias.shape == (2, 4, 3, 3)
    for row, own in zip(bias, positions, strict=True):
        alone = embedding.bias(own, own)
        assert alone is not None
        assert torch.equal(row, alone)
