"""Frequencies and turns against closed forms, and against the embedding's own rotation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fope_lab.analysis.rotation import rotation, turns, undertrained
from fope_lab.data.problems import DataError
from fope_lab.embeddings import build_embedding

SIZES: dict[str, Any] = {"head_dim": 16, "train_length": 64, "base": 500.0}


def test_frequencies_are_those_of_the_paper() -> None:
    found = rotation("rope", **SIZES)
    expected = 500.0 ** (-np.arange(8) / 8)
    np.testing.assert_allclose(found.frequencies, expected, rtol=1e-15)
    np.testing.assert_allclose(found.wavelengths, 2 * np.pi / expected)
    np.testing.assert_array_equal(undertrained(found.frequencies, 64), expected < 2 * np.pi / 64)


def test_pairs_that_stand_still_have_endless_wavelengths_and_are_not_undertrained() -> None:
    found = rotation("fope-cf", **SIZES)
    still = found.frequencies == 0
    assert still.sum() == undertrained(rotation("rope", **SIZES).frequencies, 64).sum() > 0
    assert np.isinf(found.wavelengths[still]).all()
    assert not undertrained(found.frequencies, 64).any()


def test_a_factor_goes_to_those_that_need_one() -> None:
    assert "factor" not in rotation("rope", **SIZES, factor=4.0).spec
    scaled = rotation("pi", **SIZES, factor=4.0)
    np.testing.assert_allclose(scaled.frequencies, rotation("rope", **SIZES).frequencies / 4)


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("rop", {}, r"did you mean 'rope'\?"),
        ("alibi", {}, "embedding: found 'alibi', needs an embedding that rotates"),
        ("nope", {}, "needs an embedding that rotates"),
        ("yarn", {}, "embedding: found 'yarn', which needs a factor"),
        ("rope", {"head_dim": 15}, "15"),
    ],
)
def test_refusals(name: str, sizes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        rotation(name, **{**SIZES, **sizes})


@pytest.mark.parametrize("name", ["rope", "p-rope", "yarn", "fope", "fope-official", "random-rope"])
def test_turns_are_what_rotated_vectors_score(name: str) -> None:
    torch.manual_seed(0)
    one = rotation(name, **SIZES, factor=2.0)
    shape: dict[str, Any] = {"num_heads": 3, "head_dim": 16, "train_length": 64}
    embedding = build_embedding(one.spec, **shape)
    found = turns(embedding, 40)
    assert found.shape[1:] == (8, 40)
    q, k = (torch.randn(1, 3, 1, 16).expand(-1, -1, 40, -1) for _ in range(2))
    turned_q, turned_k = embedding.rotate(q, k, torch.arange(40))
    scores = (turned_q[0, :, -1:] * turned_k[0]).sum(-1).flip(-1).numpy()
    plain_q, plain_k = (v[0, :, 0].double().numpy() for v in (q, k))
    product = (plain_q[:, :8] - 1j * plain_q[:, 8:]) * (plain_k[:, :8] + 1j * plain_k[:, 8:])
    expected = (product[:, :, None] * found).sum(axis=1).real
    np.testing.assert_allclose(scores, expected, atol=2e-5)


def test_ropes_turns_in_float64() -> None:
    found = turns(build_embedding("rope", head_dim=8, num_heads=1, train_length=64), 30)
    omega = 10_000.0 ** (-np.arange(4) / 4)
    np.testing.assert_allclose(found[0], np.exp(-1j * omega[:, None] * np.arange(30)), atol=1e-5)
