"""Resonance RoPE: whole wavelengths, and Theorem 1 of its paper."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from ladders import ladder_of
from torch import Tensor

from fope_lab.embeddings import build_embedding
from fope_lab.embeddings.frequencies import Ladder, rope_ladder
from fope_lab.embeddings.module import PositionEmbedding
from fope_lab.embeddings.resonance import Resonance
from fope_lab.embeddings.truncate import Truncate
from fope_lab.embeddings.yarn import Yarn

LENGTH, LONGER = 512, 4096


def build(spec: object) -> PositionEmbedding:
    return build_embedding(spec, head_dim=64, num_heads=1, train_length=LENGTH)  # type: ignore[arg-type]


def wavelengths(ladder: Ladder) -> Tensor:
    frequencies = ladder.frequencies[: ladder.rotating]
    return 2 * math.pi / torch.tensor(frequencies, dtype=torch.float64)


@given(base=st.floats(2, 1e6), head_dim=st.sampled_from([2, 64, 128]), factor=st.floats(1, 32))
def test_wavelengths_are_the_nearest_whole_numbers(
    base: float, head_dim: int, factor: float
) -> None:
    ladder = rope_ladder(head_dim, base=base, train_length=LENGTH)
    for before in (ladder, Yarn(factor=factor).apply(ladder), Truncate(p=0.5).apply(ladder)):
        after = Resonance().apply(before)
        assert after.rotating == before.rotating
        assert after.attention_factor == before.attention_factor
        expected = wavelengths(before).round()  # torch rounds half to even
        torch.testing.assert_close(wavelengths(after), expected, rtol=1e-12, atol=0)


def test_halves_go_to_the_even_number() -> None:
    halves = ladder_of(2 * math.pi / 6.5, 2 * math.pi / 7.5)
    assert wavelengths(Resonance().apply(halves)).round(decimals=9).tolist() == [6, 8]


def feature_gaps(embedding: PositionEmbedding) -> Tensor:
    """For each pair the largest distance of a position past the training length to the nearest
    one inside it, for features of length 1 (Eq. 8 takes the smallest such distance)."""
    features = torch.zeros(1, 1, LONGER, 64)
    features[..., :32] = 1.0
    rotated, _ = embedding.rotate(features, features, torch.arange(LONGER))
    pairs = torch.stack(rotated[0, 0].double().chunk(2, dim=-1), dim=-1).transpose(0, 1)
    return torch.cdist(pairs[:, LENGTH:], pairs[:, :LENGTH]).min(-1).values.max(-1).values


def test_theorem_1_pre_critical_pairs_have_no_feature_gap() -> None:
    resonance, rope = build("resonance-rope"), build("rope")
    pre_critical = 2 * math.pi / resonance.inv_freq <= LENGTH
    assert 10 < int(pre_critical.sum()) < 32
    gaps = feature_gaps(resonance)
    assert gaps[pre_critical].max() < 1e-6
    assert gaps[~pre_critical].min() > 1e-2
    assert feature_gaps(rope)[pre_critical].max() > 1e-2


def test_after_yarn_too() -> None:
    embedding = build({"type": "resonance-yarn", "factor": 4})
    pre_critical = 2 * math.pi / embedding.inv_freq <= LENGTH
    assert feature_gaps(embedding)[pre_critical].max() < 1e-6


def test_wavelengths_stay_whole_far_away() -> None:
    """The tables at a million tokens are those of the first wavelength, to float32."""
    embedding = build("resonance-rope")
    for pair, wavelength in enumerate((2 * math.pi / embedding.inv_freq).round().int().tolist()):
        far = 1_000_000 // wavelength * wavelength
        cos_sin = embedding.cos_sin(torch.tensor([5, 5 + far]))
        for table in cos_sin:
            torch.testing.assert_close(
                table[0, 1, pair], table[0, 0, pair], rtol=0, atol=1e-6, check_stride=False
            )
