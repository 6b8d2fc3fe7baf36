"""Spectra and scores of waves through layers against trigonometric identities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from analysed import computed
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fope_lab.analysis import parse_analysis
from fope_lab.data.problems import DataError
from fope_lab.papers.fope.harmonics import (
    ACTIVATIONS,
    CYCLES,
    SAMPLES,
    amplitudes,
    combinations,
    contributions,
    error,
    fitted,
    mixing,
    mixture,
    series,
    share,
    single,
)

OMEGAS = np.array([0.4, 0.15])
N = np.arange(50)


def wave(*cycles: int, length: int = 128) -> NDArray[np.float64]:
    n = 2 * np.pi * np.arange(length) / length
    return np.asarray(np.sum([np.cos(c * n) for c in cycles], axis=0))


@given(st.integers(1, 31), st.integers(1, 31))
def test_the_square_of_two_waves_is_equation_18(first: int, second: int) -> None:
    found = amplitudes(ACTIVATIONS["square"](wave(first, second)))
    expected = np.zeros(65)
    terms = [(0, 1.0), (2 * first, 0.5), (2 * second, 0.5)]
    for cycles, height in [*terms, (abs(first - second), 1.0), (first + second, 1.0)]:
        expected[cycles] += height
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_amplitudes_at_both_ends() -> None:
    np.testing.assert_allclose(amplitudes(3 + 2 * wave(64)), [3, *[0] * 63, 2], atol=1e-12)


def test_shares_of_energy_are_those_of_mean_squares() -> None:
    found = amplitudes(wave(64) + np.sqrt(2) * wave(5))  # mean squares of 1 each
    assert share(found, np.array([64])) == pytest.approx(0.5)
    assert share(found, np.array([5])) == pytest.approx(0.5)


def test_a_linear_layer_only_mixes() -> None:
    mixed = mixing(0.3, 0.1) @ np.stack([wave(5), wave(9)])
    found = amplitudes(mixed)
    for row, heights in zip(found, ({5: 0.7, 9: 0.3}, {5: 0.1, 9: 0.9}), strict=True):
        assert {i: round(float(row[i]), 12) for i in np.flatnonzero(row > 1e-9)} == heights


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_at_known_points(name: str) -> None:
    known = {
        "linear": (-2.0, 3.0),
        "relu": (0.0, 3.0),
        "silu": (-2 / (1 + math.e**2), 3 / (1 + math.e**-3)),
        "square": (4.0, 9.0),
        "tanh": (math.tanh(-2), math.tanh(3)),
    }
    np.testing.assert_allclose(ACTIVATIONS[name](np.array([-2.0, 3.0])), known[name])


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 5))
def test_combinations_are_where_their_waves_are(first: int, second: int, order: int) -> None:
    found = combinations(first, second, 128, order)
    right = set()
    for j in range(order + 1):
        for k in range(order + 1 - j):
            for sign in (1, -1):
                right.add(int(amplitudes(wave(j * first + sign * k * second)).argmax()))
    assert found.tolist() == sorted(right)


def test_shares_leave_out_the_mean() -> None:
    assert share(np.array([5.0, 1.0, 2.0, 0.0]), np.array([1])) == pytest.approx(0.2)


@pytest.mark.parametrize("activation", ["relu", "silu", "tanh"])
def test_lemma_3_1_activations_add_combinations_and_nothing_else(activation: str) -> None:
    arrays, numbers = computed("harmonics", activation=activation)
    assert numbers["share_outside_own_before"] == pytest.approx(0, abs=1e-12)
    assert numbers["share_outside_own_linear"] == pytest.approx(0.09 / 0.58)
    assert numbers["share_outside_both_linear"] == pytest.approx(0, abs=1e-12)
    assert numbers["share_outside_both_activation"] > 0.0005
    assert share(arrays["activation"], combinations(*CYCLES, SAMPLES, 6)) > 0.998
    assert numbers["share_at_combinations"] > 0.98


def test_a_linear_layer_s_damage_is_equation_6() -> None:
    found = contributions(mixture(OMEGAS, mixing(0.4, 0.2), "linear", 50))
    np.testing.assert_allclose(found[0], 0.6 * np.cos(0.4 * N) + 0.4 * np.cos(0.15 * N))
    np.testing.assert_allclose(found[1], 0.2 * np.cos(0.4 * N) + 0.8 * np.cos(0.15 * N))


def test_an_activation_acts_before_the_products() -> None:
    found = contributions(mixture(OMEGAS, mixing(0.4, 0.2), "relu", 50))
    waves = 0.6 * np.cos(0.4 * N) + 0.4 * np.cos(0.15 * N)
    np.testing.assert_allclose(found[0], np.maximum(waves, 0))


def test_one_frequency_and_a_series() -> None:
    coefficients = np.array([2.0, 3.0])
    np.testing.assert_allclose(
        single(coefficients, OMEGAS, 50), [2 * np.cos(0.4 * N), 3 * np.cos(0.15 * N)]
    )
    weights = np.array([[1.0, 0.5, 0.1], [0.2, 1.0, 0.0]])
    found = series(coefficients, weights, np.array([0.4, 0.15, 0.0]), 50)
    first, second = np.cos(0.4 * N), np.cos(0.15 * N)
    np.testing.assert_allclose(found[0], 2 * (first + 0.5 * second + 0.1))
    np.testing.assert_allclose(found[1], 3 * (0.2 * first + second))


def test_a_fit_finds_the_weights_of_a_series() -> None:
    coefficients = np.array([2.0, 3.0])
    weights = np.array([[1.0, 0.5, 0.1], [0.2, 1.0, -0.3]])
    frequencies = np.array([0.4, 0.15, 0.0])
    true = series(coefficients, weights, frequencies, 50)
    np.testing.assert_allclose(fitted(true, coefficients, frequencies, 20), weights, atol=1e-9)


def test_errors_are_relative() -> None:
    true = np.array([[3.0, 4.0], [1.0, 1.0]])
    np.testing.assert_allclose(error(true * np.array([[1.1], [1.0]]), true), [0.1, 0])
    np.testing.assert_allclose(error(np.zeros((2, 2)), true), [1, 1])


def test_the_claim_of_figure_3() -> None:
    _, found = computed("spectrum-damage")
    for where in ("within", "beyond"):
        assert found[f"error_fope_{where}"] < 0.5 * found[f"error_rope_{where}"]
    _, linear = computed("spectrum-damage", activation="linear")
    assert linear["error_fope_beyond"] < 1e-9
    assert linear["error_rope_beyond"] > 0.1


def test_without_damage_rope_is_exact() -> None:
    mixed = mixture(OMEGAS, mixing(0.0, 0.0), "linear", 50)
    estimate = single(mixed[:, 0] ** 2, OMEGAS, 50)
    assert error(estimate, contributions(mixed)).max() < 1e-12


def test_without_noise_fope_is_rope() -> None:
    arrays, found = computed("spectrum-damage", sigma=0.0)
    rope = error(arrays["rope"][2], arrays["true"][2])
    assert found["error_fope_drawn_median"] == pytest.approx(rope)
    assert found["share_of_draws_closer_than_rope"] == 0


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("harmonics", {"activation": "swish"}, "activation: found 'swish'"),
        ("harmonics", {"leak": 0.5}, "unknown option 'leak'"),
        ("spectrum-damage", {"activation": "relu6"}, "activation"),
    ],
)
def test_refusals(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_analysis({"type": name, **options})
