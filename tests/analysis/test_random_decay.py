"""Scores at drawn positions against the rotation that models use, and the paper's claims."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fope_lab.analysis import parse_analysis
from fope_lab.data.problems import DataError
from fope_lab.drawing.svg import standalone_svg
from fope_lab.embeddings import build_embedding
from fope_lab.papers.p_rope.random_decay import RandomDecay, drawn_positions, scores_at

SMALL = RandomDecay(head_dim=64, length=256, reach=8, draws=8, pairs=60)


def ignore(done: int, total: int) -> None:
    pass


@given(length=st.integers(1, 50), reach=st.integers(1, 9), seed=st.integers(0, 5))
def test_positions_are_different_in_order_and_below_the_bound(
    length: int, reach: int, seed: int
) -> None:
    found = drawn_positions(length, length * reach, np.random.default_rng(seed))
    assert len(found) == length
    assert (np.diff(found) > 0).all()
    assert found[0] >= 0
    assert found[-1] < length * reach


def test_scores_are_those_of_the_rotation() -> None:
    generator = np.random.default_rng(0)
    positions = drawn_positions(40, 500, generator)
    queries, keys = generator.standard_normal((2, 3, 32))
    embedding = build_embedding("rope", head_dim=32, num_heads=1, train_length=40)
    q, k = (torch.from_numpy(x)[:, None, None].expand(-1, 1, 40, -1) for x in (queries, keys))
    turned, of_keys = embedding.rotate(q, k, torch.from_numpy(positions))
    expected = (turned[:, 0, -1:] * of_keys[:, 0]).sum(-1).flip(-1) / 32
    assert embedding.inv_freq is not None
    found = scores_at(embedding.inv_freq.numpy(), queries, keys, positions)
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-6)


def test_what_the_paper_says() -> None:
    arrays = SMALL.compute(None, ignore)
    assert arrays["bounds"].tolist() == [256, 512, 1024, 2048]
    numbers = SMALL.numbers(arrays)
    halved = [numbers[f"x{times}_constant_halved_at"] for times in (1, 2, 4, 8)]
    assert halved == sorted(halved, reverse=True)
    assert halved[0] > 2 * halved[-1]
    # The score of Gaussian vectors over head_dim has deviation 1/√head_dim at every distance.
    np.testing.assert_allclose(arrays["deviation"].mean(axis=1), 1 / 8, rtol=0.1)
    np.testing.assert_allclose(arrays["constant"][:, 0], 1)
    assert arrays["constant"][0, 1] == pytest.approx(np.cos(10_000 ** -(np.arange(32) / 32)).mean())


def test_options_come_back() -> None:
    assert parse_analysis(SMALL.canonical()) == SMALL
    assert parse_analysis("random-decay").canonical() == {"type": "random-decay"}
    with pytest.raises(DataError, match="head_dim: found 7, needs an even number"):
        parse_analysis({"type": "random-decay", "head_dim": 7})
    with pytest.raises(DataError, match="reach: found 6, needs a power of two"):
        parse_analysis({"type": "random-decay", "reach": 6})


def test_the_figure() -> None:
    small = RandomDecay(head_dim=16, length=32, reach=2, draws=1, pairs=2)
    svg = standalone_svg(small.draw(small.compute(None, ignore)), small.name, small.says)
    assert "drawn from 64" in "".join(ET.fromstring(svg).itertext())
