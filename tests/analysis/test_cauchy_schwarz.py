"""Bounds that hold, parts that sum to the model's logits, heads made by hand that reach them."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fope_lab.analysis import Subject, parse_analysis
from fope_lab.analysis.activations import embedding_of, record
from fope_lab.analysis.attention_pattern import attention_logits
from fope_lab.drawing.svg import standalone_svg
from fope_lab.embeddings import build_embedding
from fope_lab.model import Decoder, ModelConfig
from fope_lab.papers.p_rope.cauchy_schwarz import CauchySchwarz, scores_and_bounds

SMALL = CauchySchwarz(sequences=2, length=30, drawn=6)
TEXT = "It is a truth universally acknowledged, that a single man in "


def ignore(done: int, total: int) -> None:
    pass


def model_of(embedding: Any, **sizes: Any) -> Decoder:
    config = ModelConfig(num_layers=2, num_heads=4, head_dim=16, vocab_size=272, **sizes)
    model = Decoder(config, embedding, train_length=64).eval()
    generator = torch.Generator().manual_seed(3)
    for weight in model.parameters():
        weight.data += torch.randn(weight.shape, generator=generator) * 0.2
    return model


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
    subject = reading(model_of(embedding, num_kv_heads=2), TEXT)
    arrays = SMALL.compute(subject, ignore)
    row = torch.from_numpy(subject.tokens[:30])[None]
    layers = list(record(subject.model, row))
    for kind, (layer, head) in enumerate(arrays["heads"]):
        _, q, k = layers[layer]
        logits = attention_logits(embedding_of(subject.model, layer), q, k, torch.arange(30))
        for at, offset in enumerate((0, 1)):
            expected = logits[0, head].diagonal(-offset)[: 6 - offset]
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
    embedding = build_embedding("rope", head_dim=16, num_heads=1, train_length=64)
    query = torch.full((16,), 3.0)
    turned, _ = embedding.rotate(*[query[None, None, None]] * 2, torch.tensor([1]))
    heads = {(1, 2): (query, query, 0), (2, 0): (query, turned[0, 0, 0], 0)}
    subject = reading(made_by_hand(heads), TEXT)
    numbers = SMALL.numbers(SMALL.compute(subject, ignore))
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
    numbers = SMALL.numbers(arrays)
    assert numbers["previous_head_own_token"] == 1 / 8
    assert numbers["previous_head_own_token_of_pair_bounds"] == 1 / 4
    assert numbers["previous_head_own_token_of_fast_bounds"] == 1


def test_options_come_back_and_the_figure(reading: Callable[..., Subject]) -> None:
    assert parse_analysis(SMALL.canonical()) == SMALL
    arrays = SMALL.compute(reading(model_of("rope"), TEXT), ignore)
    svg = standalone_svg(SMALL.draw(arrays), SMALL.name, SMALL.says)
    assert "most on the previous token" in "".join(ET.fromstring(svg).itertext())
