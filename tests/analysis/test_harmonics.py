"""Spectra of waves through layers against trigonometric identities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fope_lab.analysis import parse_analysis
from fope_lab.data.problems import DataError
from fope_lab.papers.fope.harmonics import ACTIVATIONS, amplitudes, combinations, mixing, share


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
    analysis = parse_analysis({"type": "harmonics", "activation": activation, "order": 6})
    arrays = analysis.compute(None, lambda done, total: None)
    numbers = analysis.numbers(arrays)
    assert numbers["share_outside_own_before"] == pytest.approx(0, abs=1e-12)
    assert numbers["share_outside_own_linear"] == pytest.approx(0.09 / 0.58)
    assert numbers["share_outside_both_linear"] == pytest.approx(0, abs=1e-12)
    assert numbers["share_outside_both_activation"] > 0.0005
    assert numbers["share_at_combinations"] > 0.998


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activation": "swish"}, "activation: found 'swish'"),
        ({"length": 65}, "length: found 65, needs an even number"),
        ({"first_cycles": 40}, "second_cycles: found 40, which is first_cycles"),
        ({"first_cycles": 512}, "first_cycles: found 512, needs less than half of length 1024"),
        ({"leak": 1.5}, "leak: found 1.5"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_analysis({"type": "harmonics", **options})
