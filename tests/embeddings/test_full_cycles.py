"""RoPE-A: every pair turns a whole number of times in the training length."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ladders import ladder_of

from fope_lab.embeddings import build_embedding
from fope_lab.embeddings.frequencies import rope_ladder
from fope_lab.embeddings.full_cycles import ROUNDINGS, FullCycles
from fope_lab.embeddings.truncate import Truncate


def rounded(cycles: float, rounding: str, length: int = 64) -> float:
    """The cycles in `length` of a pair that has `cycles` of them."""
    step = 2 * math.pi / length
    ladder = ladder_of(cycles * step, train_length=length)
    [omega] = FullCycles(rounding=rounding).apply(ladder).frequencies  # type: ignore[arg-type]
    return omega / step


@given(cycles=st.floats(0.01, 2000))
def test_each_rounding_is_the_best_of_all_whole_numbers(cycles: float) -> None:
    """By search over every k ≥ 1 that could be it."""
    whole = range(1, math.ceil(cycles) + 2)
    fewer = [k for k in whole if k <= cycles + 1e-9]
    frequency = rounded(cycles, "nearest_frequency")
    assert abs(frequency - cycles) <= min(abs(k - cycles) for k in whole) + 1e-9
    wavelength = rounded(cycles, "nearest_wavelength")
    best = min(abs(1 / k - 1 / cycles) for k in whole)
    assert abs(1 / wavelength - 1 / cycles) <= best + 1e-9
    assert rounded(cycles, "ceil") == pytest.approx(min(k for k in whole if k >= cycles - 1e-9))
    assert rounded(cycles, "floor") == pytest.approx(max(fewer, default=1))


def test_roundings_differ() -> None:
    """1.45 cycles: 1 is nearer in frequency, 2 in wavelength."""
    assert [rounded(1.45, name) for name in ROUNDINGS] == pytest.approx([1, 2, 2, 1])


@pytest.mark.parametrize("rounding", list(ROUNDINGS))
def test_whole_cycles_stay_as_they_are(rounding: str) -> None:
    for cycles in range(1, 400):
        assert rounded(cycles, rounding) == pytest.approx(cycles)


@pytest.mark.parametrize("rounding", list(ROUNDINGS))
def test_the_last_position_is_followed_by_the_first(rounding: str) -> None:
    """e^{iωN} = 1 for each pair, in the tables that attention uses."""
    embedding = build_embedding(
        {"type": "rope-a", "rounding": rounding}, head_dim=64, num_heads=4, train_length=512
    )
    cos_sin = embedding.cos_sin(torch.tensor([0, 512, 51_200]))
    for table in cos_sin:
        torch.testing.assert_close(table[:, 1], table[:, 0], rtol=0, atol=1e-6)
        torch.testing.assert_close(table[:, 2], table[:, 0], rtol=0, atol=1e-5)


def test_it_takes_its_original_length_and_leaves_still_pairs_alone() -> None:
    ladder = Truncate(p=0.5).apply(rope_ladder(64, base=10_000.0, train_length=2048))
    after = FullCycles(original_length=512).apply(ladder)
    assert after.rotating == ladder.rotating
    for omega in after.frequencies[: after.rotating]:
        cycles = omega * 512 / (2 * math.pi)
        assert cycles == pytest.approx(round(cycles))
        assert round(cycles) >= 1
