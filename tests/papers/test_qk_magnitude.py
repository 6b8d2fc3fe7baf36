"""Magnitudes of queries and keys against plain means, in models of several kinds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from analysed import computed

from fope_lab.analysis import Subject, parse_analysis
from fope_lab.analysis.reading import record
from fope_lab.analysis.rotation import undertrained
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer
from fope_lab.model import Decoder, ModelConfig
from fope_lab.papers.fope.qk_magnitude import magnitudes, spans, token_means

TEXT = np.random.default_rng(0).integers(0, 40, 60)


def model_of(embedding: Any = None, **sizes: Any) -> Decoder:
    config = ModelConfig(num_layers=3, num_heads=4, head_dim=8, vocab_size=40, **sizes)
    spec = {"type": "rope", "base": 129} if embedding is None else embedding
    return Decoder(config, spec, train_length=16).eval()


def measured(model: Decoder) -> tuple[dict[str, Any], dict[str, float]]:
    return computed("qk-magnitude", Subject(model, ByteTokenizer(), TEXT), sequences=3, length=20)


def test_magnitudes_are_plain_means() -> None:
    vectors = torch.tensor([[[[1.0, -2.0], [-3.0, 4.0]], [[5.0, 6.0], [5.0, -6.0]]]])
    absolute, signed = magnitudes(token_means(vectors))
    np.testing.assert_allclose(absolute, [(1 + 3 + 5 + 5) / 4, (2 + 4 + 6 + 6) / 4])
    np.testing.assert_allclose(signed, [(1 + 5) / 2, (1 + 0) / 2])


@pytest.mark.parametrize("kv_heads", [1, 4])
@pytest.mark.parametrize("embedding", [None, "nope", {"type": "fope", "base": 129}])
def test_all_sequences_together(kv_heads: int, embedding: Any) -> None:
    model = model_of(embedding, num_kv_heads=kv_heads)
    arrays, _ = measured(model)
    batch = torch.from_numpy(TEXT).view(3, 20)
    for layer, q, k, *_ in record(model, batch):
        for name, vectors in (("queries", q), ("keys", k)):
            expected = vectors.abs().mean(dim=(0, 1, 2)).numpy()
            np.testing.assert_allclose(arrays[name][0, layer], expected, rtol=1e-4)
            expected = vectors.mean(dim=(0, 2)).abs().mean(dim=0).numpy()
            np.testing.assert_allclose(arrays[name][1, layer], expected, rtol=1e-3, atol=1e-7)


def test_every_sequence_begins_as_the_model_is_used_to() -> None:
    class Prefixed(ByteTokenizer):
        prefix_ids = (39,)

    model, analysis = model_of(), parse_analysis({"type": "qk-magnitude", "length": 15})
    found = analysis.compute(Subject(model, Prefixed(), TEXT), lambda done, total: None)
    rows = torch.from_numpy(TEXT).view(4, 15).roll(1, dims=1)
    rows[:, 0] = 39
    for layer, _, k, *_ in record(model, rows):
        expected = k.abs().mean(dim=(0, 1, 2)).numpy()
        np.testing.assert_allclose(found["keys"][0, layer], expected, rtol=1e-4)


def test_which_dimensions_are_undertrained() -> None:
    # Llama 2: 4,096 tokens, 64 pairs. Counted from 1 these are 47 … 64 and 111 … 128; the paper
    # marks two more at the left, although its formula gives them a whole cycle.
    marked = undertrained(10_000.0 ** (-np.arange(64) / 64), 4096)
    assert list(spans(np.tile(marked, 2))) == [(46, 64), (110, 128)]
    assert list(spans(np.array([True, False, True, True]))) == [(0, 1), (2, 4)]
    assert list(spans(np.zeros(4, bool))) == []


def test_numbers_compare_undertrained_dimensions_with_the_others() -> None:
    model = model_of()
    marked = np.tile(129 ** (-np.arange(4) / 4) < 2 * np.pi / 16, 2)
    assert 0 < marked.sum() < 8
    for name, weight in model.named_parameters():
        if "q_proj" in name:
            weight.data.view(4, 8, -1)[:, torch.from_numpy(marked)] *= 5
    _, numbers = measured(model)
    assert 3 < numbers["undertrained_queries_ratio"] < 8
    assert numbers["undertrained_queries_larger"] == 1
    assert 0.5 < numbers["undertrained_keys_ratio"] < 2


@pytest.mark.parametrize("embedding", ["nope", "alibi", "rope-a", {"type": "fope", "base": 129}])
def test_without_undertrained_dimensions_there_are_no_numbers(embedding: Any) -> None:
    arrays, numbers = measured(model_of(embedding))
    assert numbers == {}
    assert arrays["queries"].shape == (2, 3, 8)


def test_tokens_asked_for() -> None:
    assert parse_analysis({"type": "qk-magnitude", "sequences": 3, "length": 20}).tokens == 60
    assert parse_analysis("qk-magnitude").tokens == 1024
