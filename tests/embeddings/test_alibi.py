"""ALiBi's slopes against Hugging Face and closed forms, and its bias."""

from __future__ import annotations

import math

import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from fope_lab.embeddings import build_embedding
from fope_lab.embeddings.alibi import Alibi
from fope_lab.embeddings.base import Tensors
from fope_lab.embeddings.module import PositionEmbedding

HEAD_COUNTS = [*range(1, 18), 20, 24, 32, 40, 71]


def alibi(num_heads: int, **options: object) -> PositionEmbedding:
    return build_embedding(
        {"type": "alibi", **options}, head_dim=8, num_heads=num_heads, train_length=64
    )


@pytest.mark.parametrize("num_heads", HEAD_COUNTS)
def test_official_slopes_are_blooms(num_heads: int) -> None:
    theirs = build_alibi_tensor(torch.ones(1, 2), num_heads, torch.float32)
    torch.testing.assert_close(alibi(num_heads).slopes, theirs[:, 0, 1], rtol=2e-6, atol=0)


@pytest.mark.parametrize("num_heads", [1, 6, 8, 12])
def test_geometric_slopes_run_down_to_a_256th(num_heads: int) -> None:
    slopes = alibi(num_heads, slopes="geometric").slopes.tolist()
    assert slopes[-1] == pytest.approx(1 / 256)
    ratios = [math.log2(slope) * num_heads for slope in slopes]
    assert ratios == pytest.approx([-8.0 * (head + 1) for head in range(num_heads)])


@pytest.mark.parametrize("num_heads", HEAD_COUNTS)
def test_both_rules_agree_on_powers_of_two_only(num_heads: int) -> None:
    official, geometric = (
        alibi(num_heads, slopes=rule).slopes for rule in ("official", "geometric")
    )
    is_power = num_heads & (num_heads - 1) == 0
    assert torch.equal(official, geometric) == is_power


def test_the_bias_falls_with_the_distance() -> None:
    bias = alibi(4).bias(torch.tensor([5, 9]), torch.tensor([0, 5, 9]))
    assert bias.dtype == torch.float32
    slopes = [1 / 4, 1 / 16, 1 / 64, 1 / 256]
    expected = [[[-5 * m, 0, -4 * m], [-9 * m, -4 * m, 0]] for m in slopes]
    assert torch.equal(bias, torch.tensor(expected))


def test_tensors_are_made_whatever_device_the_model_is_built_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also by code that names no device, as that of a plug-in may: only weights are loaded."""
    monkeypatch.setattr(
        Alibi, "tensors", lambda self, shape: Tensors(constants={"slopes": torch.ones(2)})
    )
    with torch.device("meta"):
        found = alibi(2)
    assert found.slopes.tolist() == [1, 1]
