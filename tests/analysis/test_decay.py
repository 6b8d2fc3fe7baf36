"""Scores by distance against a plain loop of rotations, and what the paper says of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fope_lab.analysis import parse_analysis
from fope_lab.analysis.decay import scores
from fope_lab.analysis.rotation import turns
from fope_lab.embeddings import build_embedding

LENGTH, HEAD_DIM = 24, 8


@pytest.mark.parametrize("name", ["rope", "fope", "p-rope"])
def test_scores_are_those_of_rotated_vectors(name: str) -> None:
    embedding = build_embedding(name, head_dim=HEAD_DIM, num_heads=1, train_length=LENGTH)
    q, k = np.random.default_rng(0).standard_normal((2, 3, HEAD_DIM))
    found = scores(q, k, turns(embedding, LENGTH)[0])
    last = torch.tensor([LENGTH - 1])
    for pair in range(3):
        for distance in range(LENGTH):
            one, other = (torch.from_numpy(x[pair]).view(1, 1, 1, -1) for x in (q, k))
            turned, _ = embedding.rotate(one, one, last)
            _, key = embedding.rotate(other, other, last - distance)
            expected = float((turned * key).sum()) / HEAD_DIM
            assert found[pair, distance] == pytest.approx(expected, abs=1e-6)


def test_constant_scores_fall_and_gaussian_ones_do_not() -> None:
    decay = parse_analysis({"type": "decay", "length": 512, "pairs": 400})
    arrays = decay.compute(None, lambda done, total: None)
    numbers = decay.numbers(arrays)
    assert numbers["constant_near"] > 2 * numbers["constant_far"]
    # Prop. 3.2: the expectation is 0 at every distance, and the variance 1/head_dim (Gaussian
    # entries, turned or not, are Gaussian, and a product of two has the variance 1).
    assert np.abs(arrays["gaussian"].mean(axis=0)).max() < 5 / np.sqrt(256 * 400)
    assert arrays["gaussian"].var(axis=0).mean() == pytest.approx(1 / 256, rel=0.1)
