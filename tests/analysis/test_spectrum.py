"""The frequencies of a model, and the spectrum of its scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from analysed import computed, random_model

from fope_lab.analysis import Subject
from fope_lab.analysis.spectrum import angular, power_spectrum
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer


def spectrum(embedding: Any, **sizes: Any) -> tuple[dict[str, Any], dict[str, float]]:
    model = random_model(embedding, 0, vocab_size=300, **sizes)
    return computed("spectrum", Subject(model, ByteTokenizer(), np.empty(0, np.int64)))


@pytest.mark.parametrize("cycles", [3, 40, 61])
def test_a_wave_is_found_at_its_frequency(cycles: int) -> None:
    found = power_spectrum(np.cos(2 * np.pi * cycles * np.arange(128) / 128))
    # Hann's window: half of the amplitude stays, a quarter goes to each side.
    expected = np.zeros(65)
    expected[cycles - 1 : cycles + 2] = [1 / 6, 2 / 3, 1 / 6]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert angular(128)[cycles] == pytest.approx(2 * np.pi * cycles / 128)


@pytest.mark.parametrize("length", [128, 127])
def test_shares_are_those_of_mean_squares(length: int) -> None:
    n = np.arange(length)
    wave = np.sqrt(2) * np.cos(2 * np.pi * 20 * n / length)
    end = (-1.0) ** n * (length % 2 == 0)
    found = power_spectrum(1 + wave + end)  # mean squares of 1 each
    parts = 2 + (length % 2 == 0)
    assert found[:3].sum() == pytest.approx(1 / parts)
    assert found[18:23].sum() == pytest.approx(1 / parts)
    assert found.sum() == pytest.approx(1)


def test_ropes_undertrained_pairs_and_fopes_floor() -> None:
    _, rope = spectrum({"type": "rope", "base": 129})
    arrays, fope = spectrum({"type": "fope", "base": 129}, num_kv_heads=2)
    assert rope["rotating_pairs"] == 8
    undertrained = sum(129 ** (-i / 8) < 2 * np.pi / 64 for i in range(8))
    assert rope["undertrained_pairs"] == fope["still_pairs"] == undertrained > 0
    assert fope["undertrained_pairs"] == rope["still_pairs"] == 0
    assert rope["power_below_floor"] > 0.05
    assert fope["power_below_floor"] < 1e-4 * rope["power_below_floor"] + 1e-3
    assert arrays["usage"].shape == (8 - undertrained, 8 - undertrained)


def test_coefficients_are_those_of_all_layers_and_heads() -> None:
    noiseless, numbers = spectrum({"type": "fope", "base": 129, "sigma": 0.0})
    np.testing.assert_allclose(noiseless["usage"], np.eye(len(noiseless["series"])))
    assert numbers["energy_off_own_frequency"] == 0
    noisy, numbers = spectrum({"type": "fope", "base": 129, "noise": "normal", "sigma": 0.5})
    off = noisy["usage"][~np.eye(len(noisy["series"]), dtype=bool)]
    assert np.sqrt((off**2).mean()) == pytest.approx(0.5, rel=0.15)
    size = len(noisy["series"])
    # An own coefficient is 1 + noise, the others noise alone.
    expected = (size - 1) * 0.25 / (size * 0.25 + 1)
    assert numbers["energy_off_own_frequency"] == pytest.approx(expected, rel=0.2)


@pytest.mark.parametrize("embedding", ["alibi", "nope"])
def test_without_a_rotation_there_is_no_spectrum(embedding: str) -> None:
    with pytest.raises(DataError, match=f"{embedding} rotates nothing"):
        spectrum(embedding)
