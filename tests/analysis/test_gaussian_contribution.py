"""Scores of Gaussian queries and keys against vectors that are really rotated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fope_lab.analysis import parse_analysis
from fope_lab.analysis.rotation import turns
from fope_lab.data.problems import DataError
from fope_lab.embeddings import build_embedding
from fope_lab.papers.fope.gaussian_contribution import MEANS, constant_scores, mean_scores


def computed(**options: Any) -> tuple[dict[str, Any], dict[str, float]]:
    analysis = parse_analysis({"type": "gaussian-contribution", **options})
    arrays = dict(analysis.compute(None, lambda done, total: None))
    return arrays, analysis.numbers(arrays)


@pytest.mark.parametrize("spec", ["rope", {"type": "fope", "base": 129}])
def test_mean_scores_are_those_of_rotated_vectors(spec: Any) -> None:
    embedding = build_embedding(spec, head_dim=8, num_heads=1, train_length=64)
    queries, keys = np.random.default_rng(0).standard_normal((2, 5, 8))
    found = mean_scores(queries, keys, turns(embedding, 20)[0])
    right = np.zeros(20)
    for query, key in zip(queries, keys, strict=True):
        q, k = (torch.tensor(v).expand(1, 1, 20, 8) for v in (query, key))
        q, k = embedding.rotate(q, k, torch.arange(20))
        for distance in range(20):
            right[distance] += float(q[0, 0, 19] @ k[0, 0, 19 - distance]) / 8 / 5
    np.testing.assert_allclose(found, right, atol=1e-6)


def test_constant_scores_are_ropes_cosines() -> None:
    embedding = build_embedding("rope", head_dim=8, num_heads=1, train_length=64)
    turned = turns(embedding, 20)[0]
    omega = 10_000.0 ** (-np.arange(4) / 4)
    cosines = np.cos(omega[:, None] * np.arange(20)) / 4
    np.testing.assert_allclose(constant_scores(turned), cosines, atol=1e-6)
    ones = np.ones((1, 8))
    np.testing.assert_allclose(mean_scores(ones, ones, turned), cosines.sum(axis=0), atol=1e-6)


def test_means_are_near_their_expectation() -> None:
    arrays, _ = computed(head_dim=32, length=256, pairs=20_000)
    for mean, scores in zip(MEANS, arrays["gaussian"], strict=True):
        # A product of two entries has variance (1 + μ²)² − μ⁴.
        deviation = np.sqrt((1 + 2 * mean**2) / 32 / 20_000)
        assert np.abs(scores - mean**2 * arrays["constant"]).max() < 6 * deviation


def test_the_claims_of_figure_8() -> None:
    _, numbers = computed()
    assert numbers["decay_mean_1"] == pytest.approx(numbers["decay_constant"], rel=0.1)
    assert numbers["decay_mean_1"] > 20 * numbers["decay_mean_0_1"] > 0
    assert abs(numbers["decay_mean_0"]) < 0.02 * numbers["decay_mean_1"]
    parts = numbers["decay_undertrained"], numbers["decay_trained"]
    assert sum(parts) == pytest.approx(numbers["decay_constant"])
    assert parts[0] > 3 * parts[1]


def test_without_undertrained_pairs_there_is_little_decay() -> None:
    arrays, numbers = computed(embedding="fope-cf", length=512)
    assert not arrays["undertrained"].any()
    assert numbers["decay_constant"] < 0.4 * computed(length=512)[1]["decay_constant"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"embedding": "kerple"}, "embedding: found 'kerple', needs an embedding that rotates"),
        ({"embedding": "rpoe"}, "did you mean 'rope'"),
        ({"head_dim": 33}, "33"),
        ({"pairs": 0}, "pairs: found 0"),
        ({"mean": 0.1}, "unknown option 'mean' of analysis gaussian-contribution"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_analysis({"type": "gaussian-contribution", **options})
