"""Gaussian scores, aliases and truncated waves against rotated vectors and closed forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from analysed import computed
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from fope_lab.analysis import parse_analysis
from fope_lab.analysis.rotation import turns
from fope_lab.data.problems import DataError
from fope_lab.embeddings import build_embedding
from fope_lab.papers.fope.frequencies import (
    MEANS,
    alias,
    amplitude,
    constant_scores,
    mean_scores,
    printed_noise,
    share_beyond,
    whole_cycles,
)


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
    arrays, _ = computed("gaussian-contribution", head_dim=32, length=256, pairs=20_000)
    for mean, scores in zip(MEANS, arrays["gaussian"], strict=True):
        # A product of two entries has variance (1 + μ²)² − μ⁴.
        deviation = np.sqrt((1 + 2 * mean**2) / 32 / 20_000)
        assert np.abs(scores - mean**2 * arrays["constant"]).max() < 6 * deviation


def test_the_claims_of_figure_8() -> None:
    _, numbers = computed("gaussian-contribution")
    assert numbers["decay_mean_1"] == pytest.approx(numbers["decay_constant"], rel=0.1)
    assert numbers["decay_mean_1"] > 20 * numbers["decay_mean_0_1"] > 0
    assert abs(numbers["decay_mean_0"]) < 0.02 * numbers["decay_mean_1"]
    parts = numbers["decay_undertrained"], numbers["decay_trained"]
    assert sum(parts) == pytest.approx(numbers["decay_constant"])
    assert parts[0] > 3 * parts[1]


def test_without_undertrained_pairs_there_is_little_decay() -> None:
    arrays, numbers = computed("gaussian-contribution", embedding="fope-cf", length=512)
    assert not arrays["undertrained"].any()
    assert (
        numbers["decay_constant"]
        < 0.4 * computed("gaussian-contribution", length=512)[1]["decay_constant"]
    )


@given(st.floats(0, 50))
def test_every_frequency_has_an_alias_up_to_pi(omega: float) -> None:
    found = float(alias(np.array([omega]))[0])
    assert 0 <= found <= math.pi
    n = np.arange(40)
    np.testing.assert_allclose(np.cos(found * n), np.cos(omega * n), atol=1e-10)


def test_the_claims_of_c3() -> None:
    arrays, numbers = computed("low-pass")
    assert numbers["highest_frequency"] == 1 < numbers["bound"] == math.pi
    # Pair i of 64 has 10^(−i/16): 48 of them are 0.1 or less.
    assert numbers["pairs_up_to_a_tenth"] == 48 / 64
    assert numbers["pairs_up_to_one"] == numbers["pairs_up_to_half_pi"] == 1
    assert numbers["power_up_to_half_pi"] == pytest.approx(1, abs=1e-9)
    assert numbers["power_up_to_a_tenth"] > 0.8
    assert numbers["alias_difference"] < 1e-9
    assert arrays["power"].sum() == pytest.approx(1)


def test_the_answer_peaks_at_the_embeddings_frequencies() -> None:
    arrays, _ = computed("low-pass", head_dim=4, base=16.0, length=2048)  # 1 and 1/4
    peaks = arrays["omega"][np.argsort(arrays["power"])[-2:]]
    for omega in (1.0, 0.25):
        near = np.abs(arrays["omega"] - omega) < 0.01
        assert arrays["power"][near].sum() == pytest.approx(0.5, abs=0.01)
    assert np.all(np.min(np.abs(peaks[:, None] - [1.0, 0.25]), axis=1) < 0.004)


@given(st.floats(0.001, 3.1), st.floats(-3, 3), st.integers(2, 200))
def test_the_amplitude_is_that_of_the_sum(omega: float, delta: float, length: int) -> None:
    n = np.arange(length)
    wave = np.exp(1j * omega * n)
    expected = abs((wave * np.exp(-1j * (omega + delta) * n)).sum())
    assert float(amplitude(delta, length)) == pytest.approx(expected, abs=1e-6 * length)


@pytest.mark.parametrize("length", [16, 61, 512])
def test_the_share_beyond_is_that_of_a_padded_fft(length: int) -> None:
    size = 1 << 18
    power = np.abs(np.fft.fft(np.ones(length), size)) ** 2
    away = np.abs(np.fft.fftfreq(size) * 2 * math.pi)
    for reach in (0.001, 0.03, 0.5, 1.5):
        expected = power[away > reach].sum() / power.sum()
        found = float(share_beyond(np.array([reach]), length)[0])
        # A bin of the FFT is the error of counting bins.
        assert found == pytest.approx(expected, abs=2 * length / size)


@given(st.floats(0.002, 3), st.integers(2, 5000))
def test_cycles_and_their_remainder_make_up_the_length(omega: float, length: int) -> None:
    cycles, remainder = (x[0] for x in whole_cycles(np.array([omega]), length))
    period = 2 * math.pi / omega
    assert cycles * period + remainder == pytest.approx(length, rel=1e-9)
    assert 0 <= remainder <= period * (1 + 1e-9)


def test_a_wave_of_whole_cycles_has_no_remainder_and_one_frequency_of_the_dft() -> None:
    for cycles in (1, 3, 49):
        omega = 2 * math.pi * cycles / 512
        found, remainder = whole_cycles(np.array([omega]), 512)
        assert (found[0], round(float(remainder[0]), 6)) == (cycles, 0)
        spectrum = np.abs(np.fft.fft(np.exp(1j * omega * np.arange(512))))
        assert spectrum.argmax() == cycles
        assert spectrum[cycles] == pytest.approx(512)
        assert spectrum.sum() == pytest.approx(512, abs=1e-6)


def test_the_noise_of_eq10_is_a_window_of_twice_the_remainder() -> None:
    """As C.2 derives it: the transform of a pulse from −T to T is 2 sin(ωT)/ω, halved in Eq. 10."""
    for delta in (0.0, 0.02, 0.3):
        pulse, _ = quad(lambda t: math.cos(delta * t), -37.5, 37.5)  # noqa: B023
        assert float(printed_noise(delta, 37.5)) == pytest.approx(pulse / 2, abs=1e-9)


def test_the_statements_of_the_section() -> None:
    arrays, numbers = computed("truncated-wave")
    # 512 tokens: the pairs below 2π/512 of 10,000^(−i/32), from the 16th on.
    assert numbers["undertrained"] == 16
    assert (arrays["cycles"][:16] > 0).all()
    assert (arrays["cycles"][16:] == 0).all()
    assert numbers["cycles_fastest"] == 81
    assert numbers["elsewhere_fastest"] < 0.01
    assert numbers["elsewhere_undertrained"] > 0.5 > numbers["elsewhere_trained"]
    assert (arrays["remainder"][16:] == 512).all()


def test_without_undertrained_pairs_no_number_is_of_them() -> None:
    _, clipped = computed("truncated-wave", embedding="fope-cf", head_dim=16, length=64)
    assert clipped["undertrained"] == 0
    assert "elsewhere_undertrained" not in clipped


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gaussian-contribution", {"embedding": "rpoe"}, "did you mean 'rope'"),
        ("gaussian-contribution", {"pairs": 0}, "pairs: found 0"),
        ("gaussian-contribution", {"mean": 0.1}, "unknown option 'mean' of analysis gaussian-con"),
        ("low-pass", {"embedding": "fire"}, "embedding: found 'fire', needs an embedding that"),
        ("low-pass", {"length": 8}, "length: found 8"),
    ],
)
def test_refusals(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_analysis({"type": name, **options})
