"""Heads made by hand are found and reach their bounds; weights and bounds against plain loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from analysed import figure_text, ignore, random_model
from hypothesis import given
from hypothesis import strategies as st

from fope_lab.analysis import Subject
from fope_lab.analysis.reading import attention_logits, record
from fope_lab.embeddings import build_embedding
from fope_lab.model import Decoder
from fope_lab.papers.p_rope.positional_heads import (
    CauchySchwarz,
    PositionalHeads,
    best_heads,
    scores_and_bounds,
    uniform_weights,
    weights_at,
)

SMALL = PositionalHeads(sequences=2, length=30)
BOUNDS = CauchySchwarz(sequences=2, length=30)
TEXT = "It is a truth universally acknowledged, that a single man in "


def looking_back(offset: int) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Queries and keys of Thm. 5.3: all the same, the keys turned by the offset."""
    embedding = build_embedding("rope", head_dim=16, num_heads=1, train_length=64)
    query = torch.full((16,), 3.0)
    x = query[None, None, None]
    return query, embedding.rotate(x, x, torch.tensor([offset]))[0][0, 0, 0], 0


def test_weights_are_means_over_tokens() -> None:
    logits = torch.randn(2, 3, 7, 7)
    patterns = logits.masked_fill(torch.ones(7, 7).triu(1).bool(), float("-inf")).softmax(-1)
    found = weights_at(patterns, (0, 1, 3))
    for at, offset in enumerate((0, 1, 3)):
        for head in range(3):
            weights = [
                float(patterns[row, head, i, i - offset])
                for row in range(2)
                for i in range(1, 7)
                if i >= offset
            ]
            assert found[at, head] == pytest.approx(np.mean(weights))


def test_even_attention_has_uniform_weights() -> None:
    even = torch.ones(1, 1, 9, 9).tril()
    even /= even.sum(-1, keepdim=True)
    found = weights_at(even, (0, 1, 5))[:, 0]
    np.testing.assert_allclose(found, uniform_weights(9, (0, 1, 5)))
    assert found[2] == pytest.approx((1 / 6 + 1 / 7 + 1 / 8 + 1 / 9) / 4)


def test_ranking() -> None:
    ranked = best_heads(np.array([[0.1, 0.9], [0.5, 0.2]]))
    assert ranked.tolist() == [[0, 1], [1, 0], [1, 1], [0, 0]]


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_heads_made_by_hand_are_found(
    kv_heads: int, made_by_hand: Callable[..., Decoder], reading: Callable[..., Subject]
) -> None:
    places = {(2, 3): 0, (0, 1): 1, (1, 2): 2}
    if kv_heads == 4:
        model = made_by_hand({at: looking_back(offset) for at, offset in places.items()})
    else:  # heads 2 and 3 share key-value head 1; only one of them has a query
        model = made_by_hand({}, num_kv_heads=2)
        for (layer, head), offset in places.items():
            query, key, _ = looking_back(offset)
            attention = model.layers[layer].self_attn
            attention.q_proj.weight.data[head * 16 : head * 16 + 16, 0] = query
            attention.k_proj.weight.data[head // 2 * 16 : head // 2 * 16 + 16, 0] = key
    arrays = SMALL.compute(reading(model, TEXT), ignore)
    numbers = SMALL.numbers(arrays)
    for (layer, head), kind in zip(places, ("own", "previous", "back2"), strict=True):
        assert (numbers[f"{kind}_layer"], numbers[f"{kind}_head"]) == (layer, head)
        assert numbers[f"{kind}_weight"] > 0.99
        assert numbers[f"{kind}_heads"] == 1
    # All other heads attend evenly, since their queries are 0.
    even = np.delete(arrays["weights"][0].ravel(), [layer * 4 + head for layer, head in places])
    np.testing.assert_allclose(even, arrays["uniform"][0], rtol=1e-5)
    offsets = [0, 1, 2]
    for i, offset in enumerate(offsets):
        assert (arrays["patterns"][i].argmax(-1)[offset:] == np.arange(24 - offset)).all()


@pytest.mark.parametrize("embedding", ["alibi", "nope", "fire", "random-rope"])
def test_any_embedding(embedding: str, reading: Callable[..., Subject]) -> None:
    model = random_model(embedding, 0, num_kv_heads=2)
    arrays = SMALL.compute(reading(model, TEXT), ignore)
    assert ("key" in arrays) == (embedding == "random-rope")
    assert (arrays["weights"] > 0).all()
    if embedding == "alibi":  # the steepest slope is the first head's
        assert SMALL.numbers(arrays)["own_head"] == 0
        assert SMALL.numbers(arrays)["own_weight"] > 2 * arrays["uniform"][0]
    assert "Mean attention to the token 2 back" in figure_text(SMALL, arrays)


@given(seed=st.integers(0, 99), offset=st.integers(0, 3))
def test_bounds_hold(seed: int, offset: int) -> None:
    q, k = torch.randn(2, 3, 9, 8, generator=torch.Generator().manual_seed(seed))
    parts, bounds, total = scores_and_bounds(q, k, offset)
    assert parts.shape == (3, 9 - offset, 4)
    assert (parts.abs() <= bounds * (1 + 1e-5)).all()
    assert (bounds.sum(-1) <= total * (1 + 1e-5)).all()
    i = 5
    expected = q[1, i] @ k[1, i - offset] / 8**0.5
    assert float(parts[1, i - offset].sum()) == pytest.approx(float(expected), abs=1e-5)
    norms = q[1, i].norm() * k[1, i - offset].norm() / 8**0.5
    assert float(total[1, i - offset]) == pytest.approx(float(norms), rel=1e-5)


@pytest.mark.parametrize("embedding", ["rope", "p-rope", {"type": "fope", "base": 129}])
def test_scores_are_the_models_logits(embedding: Any, reading: Callable[..., Subject]) -> None:
    subject = reading(random_model(embedding, num_kv_heads=2), TEXT)
    arrays = BOUNDS.compute(subject, ignore)
    row = torch.from_numpy(subject.tokens[:30])[None]
    layers = list(record(subject.model, row))
    for kind, (layer, head) in enumerate(arrays["heads"]):
        logits = attention_logits(layers[layer].scores, layers[layer].seen)
        for at, offset in enumerate((0, 1)):
            expected = logits[0, head].diagonal(-offset)[: 8 - offset]
            np.testing.assert_allclose(arrays["scores"][kind, at, offset:], expected, atol=1e-5)
            assert np.isnan(arrays["scores"][kind, at, :offset]).all()
    shown = np.nan_to_num(arrays["limits"] * 1.00001 - arrays["scores"])
    assert (shown >= 0).all()
    assert (arrays["bound"] * 1.00001 >= np.abs(arrays["contribution"])).all()
    assert (arrays["total"] * 1.00001 >= arrays["bound"].sum(-1)).all()


def test_the_papers_construction_reaches_its_bound(
    made_by_hand: Callable[..., Decoder], reading: Callable[..., Subject]
) -> None:
    """Keys equal to queries, and keys turned by one token."""
    subject = reading(made_by_hand({(1, 2): looking_back(0), (2, 0): looking_back(1)}), TEXT)
    numbers = BOUNDS.numbers(BOUNDS.compute(subject, ignore))
    assert (numbers["own_layer"], numbers["own_head"]) == (1, 2)
    assert (numbers["previous_layer"], numbers["previous_head"]) == (2, 0)
    one_token = np.cos(10_000 ** -(np.arange(8) / 8)).mean()  # of pairs that are used alike
    for bound in ("", "_of_pair_bounds"):
        assert numbers[f"own_head_own_token{bound}"] == pytest.approx(1, abs=1e-5)
        assert numbers[f"previous_head_previous_token{bound}"] == pytest.approx(1, abs=1e-5)
        assert numbers[f"own_head_previous_token{bound}"] == pytest.approx(one_token, abs=1e-5)
        assert numbers[f"previous_head_own_token{bound}"] == pytest.approx(one_token, abs=1e-5)


def test_shares_of_bounds() -> None:
    """Of scores whose fastest quarter is at its bound, and whose other pairs add nothing."""
    parts = np.broadcast_to([1.0, 1, 0, 0, 0, 0, 0, 0], (2, 2, 8))
    arrays = {"bound": np.broadcast_to([1.0, 1, 2, 2, 2, 0, 0, 0], (2, 2, 8))}
    arrays |= {"contribution": parts, "total": np.full((2, 2), 16.0), "heads": np.zeros((2, 2))}
    numbers = BOUNDS.numbers(arrays)
    assert numbers["previous_head_own_token"] == 1 / 8
    assert numbers["previous_head_own_token_of_pair_bounds"] == 1 / 4
    assert numbers["previous_head_own_token_of_fast_bounds"] == 1
