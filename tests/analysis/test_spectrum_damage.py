"""Scores of a mixture against Eq. 6, and what one frequency and a series can make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fope_lab.analysis import parse_analysis
from fope_lab.data.problems import DataError
from fope_lab.papers.fope.harmonics import mixing
from fope_lab.papers.fope.spectrum_damage import (
    contributions,
    error,
    fitted,
    mixture,
    series,
    single,
)

OMEGAS = np.array([0.4, 0.15])
N = np.arange(50)


def numbers(**options: Any) -> dict[str, float]:
    analysis = parse_analysis({"type": "spectrum-damage", **options})
    return analysis.numbers(analysis.compute(None, lambda done, total: None))


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
    found = numbers()
    for where in ("within", "beyond"):
        assert found[f"error_fope_{where}"] < 0.5 * found[f"error_rope_{where}"]
    linear = numbers(activation="linear")
    assert linear["error_fope_beyond"] < 1e-9
    assert linear["error_rope_beyond"] > 0.1


def test_without_damage_rope_is_exact() -> None:
    found = numbers(first_leak=0.0, second_leak=0.0, activation="linear")
    assert found["error_rope_within"] < 1e-12
    assert found["share_of_draws_closer_than_rope"] == 0


def test_without_noise_fope_is_rope() -> None:
    found = numbers(sigma=0.0, draws=1, length=2000, train_length=1999)
    assert found["error_fope_drawn_median"] == pytest.approx(found["error_rope_within"], rel=1e-2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"first_period": 42.0}, "second_period: found 42, which is first_period"),
        ({"first_period": 2.0}, "first_period: found 2.0"),
        ({"length": 64}, "length: found 64, needs more than train_length 64"),
        ({"activation": "relu6"}, "activation"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_analysis({"type": "spectrum-damage", **options})
