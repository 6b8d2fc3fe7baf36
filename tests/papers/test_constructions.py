"""The paper's constructions against plain softmaxes, and scores at drawn positions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from analysed import ignore
from hypothesis import given
from hypothesis import strategies as st

from fope_lab.analysis import parse_analysis
from fope_lab.analysis.reading import attention_weights, scores_of
from fope_lab.analysis.rotation import rotation
from fope_lab.data.problems import DataError
from fope_lab.embeddings import build_embedding
from fope_lab.model.seen import Seen
from fope_lab.papers.p_rope.constructions import (
    CONTEXT,
    Constructions,
    RandomDecay,
    drawn_positions,
    peaked_scores,
    positional_attention,
    scores_at,
    semantic_attention,
    semantic_norm,
    unpositioned_attention,
)

ROTARY = rotation("rope", head_dim=16, train_length=64, base=10_000.0)


@given(seed=st.integers(0, 99), peak=st.integers(0, 63))
def test_scores_peak_where_asked_as_in_the_proof(seed: int, peak: int) -> None:
    query = np.random.default_rng(seed).standard_normal(16)
    [found] = peaked_scores(ROTARY, query, np.array([peak]), 64)
    norms = query[:8] ** 2 + query[8:] ** 2
    omega = 10_000.0 ** -(np.arange(8) / 8)
    angles = (np.arange(64) - peak)[:, None] * omega
    np.testing.assert_allclose(found, (np.cos(angles) @ norms) / norms.sum(), atol=1e-6)
    assert found.argmax() == peak


@pytest.mark.parametrize("offset", [0, 1])
def test_positional_attention_is_that_of_a_head(offset: int) -> None:
    """With every query ψ and every key turned by the offset, in attention itself."""
    embedding = ROTARY.module
    norms = np.array([0.5, 7.0, 40.0])
    for norm, found in zip(norms, positional_attention(ROTARY, offset, norms, 50), strict=True):
        psi = torch.full((1, 1, 50, 16), math.sqrt(norm / 16), dtype=torch.float64)
        key, _ = embedding.rotate(psi, psi, torch.full((50,), offset))
        scores = scores_of(embedding, psi * 4, key, torch.arange(50), psi)  # 4 = √head_dim
        weights = attention_weights(scores, Seen.of(50, 50))
        of_each = weights[0, 0].diagonal(-offset)
        assert found == pytest.approx(float(of_each[-1]), rel=1e-5)
        assert (of_each[:-1] >= of_each[-1] - 1e-6).all()


def test_without_positions_half_is_the_most() -> None:
    norms = np.array([0.1, 1.0, 3.0])
    for norm, found in zip(norms, unpositioned_attention(norms), strict=True):
        assert found == pytest.approx(float(torch.tensor([-norm, norm, norm]).softmax(0)[2]))
        assert found < 0.5


@pytest.mark.parametrize("frequency", [0.0, 0.003, 0.5])
def test_the_semantic_head_is_the_worst_of_all_places(frequency: float) -> None:
    norm, found = 1.7, semantic_attention(frequency, 1.7, 40)
    for context in range(1, 41):
        scores = -norm * np.cos(frequency * np.arange(context))
        attention = []
        for place in range(context):
            logits = scores.copy()
            logits[place] *= -1
            attention.append(np.exp(logits[place]) / np.exp(logits).sum())
        assert found[context - 1] == pytest.approx(min(attention))


def test_the_norm_is_what_a_head_without_rotation_needs() -> None:
    assert semantic_attention(0.0, semantic_norm(700, 0.02), 700)[-1] == pytest.approx(0.98)


@pytest.mark.parametrize("name", ["alibi", "fope", "nope", "dynamic-ntk", "roqe"])
def test_what_is_no_rotation_is_an_error(name: str) -> None:
    options = {"type": "constructions", "embedding": name, "head_dim": 64, "length": 2048}
    with pytest.raises(DataError, match=name):
        parse_analysis(options)


def test_what_the_paper_says_of_constructions() -> None:
    small = Constructions(head_dim=16, length=64)
    numbers = small.numbers(small.compute(None, ignore))
    assert numbers["peaks_where_asked"] == 1
    assert numbers["own_squared_norm"] < 200
    assert numbers["previous_squared_norm"] < 200
    assert numbers["unpositioned_most"] <= 0.5
    assert numbers["unturned_reach"] == CONTEXT
    assert numbers["base_10000_reach"] < math.pi / 2 * 10_000 ** (7 / 8), "a quarter of a turn"
    assert numbers["base_10000_reach"] < numbers["base_500000_reach"] < CONTEXT


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


def test_what_the_paper_says_of_random_positions() -> None:
    small = RandomDecay(head_dim=64, length=256)
    arrays = small.compute(None, ignore)
    assert arrays["bounds"].tolist() == [256, 512, 1024, 2048, 4096]
    numbers = small.numbers(arrays)
    halved = [numbers[f"x{times}_constant_halved_at"] for times in (1, 2, 4, 8, 16)]
    assert halved == sorted(halved, reverse=True)
    assert halved[0] > 2 * halved[-1]
    # The score of Gaussian vectors over head_dim has deviation 1/√head_dim at every distance.
    np.testing.assert_allclose(arrays["deviation"].mean(axis=1), 1 / 8, rtol=0.1)
    np.testing.assert_allclose(arrays["constant"][:, 0], 1)
    assert arrays["constant"][0, 1] == pytest.approx(np.cos(10_000 ** -(np.arange(32) / 32)).mean())


def test_sizes_of_random_decay() -> None:
    with pytest.raises(DataError, match="head_dim: found 7, needs an even number"):
        parse_analysis({"type": "random-decay", "head_dim": 7})
