"""The clip floor against its definition."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ladders import ladder_of

from fope_lab.embeddings.clip_floor import ClipFloor
from fope_lab.embeddings.frequencies import rope_ladder


@given(
    head_dim=st.sampled_from([2, 8, 32, 64]), base=st.floats(2, 1e6), length=st.integers(1, 100_000)
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
