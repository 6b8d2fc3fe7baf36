"""Positional heads that are made by hand are found; weights against a plain loop."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fope_lab.analysis import Subject, parse_analysis
from fope_lab.data.problems import DataError
from fope_lab.drawing.svg import standalone_svg
from fope_lab.embeddings import build_embedding
from fope_lab.model import Decoder, ModelConfig
from fope_lab.papers.p_rope.positional_heads import (
    PositionalHeads,
    best_heads,
    uniform_weights,
    weights_at,
)

SMALL = PositionalHeads(sequences=2, length=30, offset=4, drawn=10)
TEXT = "It is a truth universally acknowledged, that a single man in "


def ignore(done: int, total: int) -> None:
    pass


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
    places = {(2, 3): 0, (0, 1): 1, (1, 2): 4}
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
    for (layer, head), kind in zip(places, ("own", "previous", "back4"), strict=True):
        assert (numbers[f"{kind}_layer"], numbers[f"{kind}_head"]) == (layer, head)
        assert numbers[f"{kind}_weight"] > 0.99
        assert numbers[f"{kind}_heads"] == 1
    # All other heads attend evenly, since their queries are 0.
    even = np.delete(arrays["weights"][0].ravel(), [layer * 4 + head for layer, head in places])
    np.testing.assert_allclose(even, arrays["uniform"][0], rtol=1e-5)
    offsets = [0, 1, 4]
    for i, offset in enumerate(offsets):
        assert (arrays["patterns"][i].argmax(-1)[offset:] == np.arange(10 - offset)).all()


@pytest.mark.parametrize("embedding", ["alibi", "nope", "fire", "random-rope"])
def test_any_embedding(embedding: str, reading: Callable[..., Subject]) -> None:
    config = ModelConfig(num_layers=2, num_heads=4, head_dim=16, num_kv_heads=2, vocab_size=272)
    model = Decoder(config, embedding, train_length=64).eval()
    arrays = SMALL.compute(reading(model, TEXT), ignore)
    assert ("key" in arrays) == (embedding == "random-rope")
    assert (arrays["weights"] > 0).all()
    if embedding == "alibi":  # the steepest slope is the first head's
        assert SMALL.numbers(arrays)["own_head"] == 0
        assert SMALL.numbers(arrays)["own_weight"] > 2 * arrays["uniform"][0]
    svg = standalone_svg(SMALL.draw(arrays), SMALL.name, SMALL.says)
    assert "Mean attention to the token 4 back" in "".join(ET.fromstring(svg).itertext())


def test_options_come_back() -> None:
    assert parse_analysis(SMALL.canonical()) == SMALL
    assert parse_analysis("positional-heads").canonical() == {"type": "positional-heads"}
    wrong: dict[str, Any] = {"type": "positional-heads", "length": 8, "offset": 8}
    with pytest.raises(DataError, match="offset 8 needs to be less than length 8"):
        parse_analysis(wrong)
