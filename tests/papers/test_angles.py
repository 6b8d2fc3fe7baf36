"""Feature gaps and angles against plain loops, and Resonance RoPE's Theorem 1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from analysed import computed
from hypothesis import given
from hypothesis import strategies as st

from fope_lab.analysis import parse_analysis
from fope_lab.data.problems import DataError
from fope_lab.papers.resonance.angles import angle_gaps, angles, feature_gaps


@given(st.floats(0, math.pi), st.integers(2, 12), st.integers(1, 12), st.integers(1, 5))
def test_gaps_are_those_of_a_plain_loop(omega: float, trained: int, more: int, phases: int) -> None:
    gaps = feature_gaps(omega, trained, trained + more, phases)
    for i in range(phases):
        phi = 2 * math.pi * i / phases
        for n in range(trained + more):
            right = min(
                abs(math.cos(omega * m + phi) - math.cos(omega * n + phi)) for m in range(trained)
            )
            assert gaps[i, n] == pytest.approx(right, abs=1e-12)


@given(st.integers(2, 60), st.integers(0, 40), st.integers(1, 200))
def test_theorem_1_whole_wavelengths_within_the_length_leave_no_gap(
    wavelength: int, longer: int, more: int
) -> None:
    trained = wavelength + longer
    gaps = feature_gaps(2 * math.pi / wavelength, trained, trained + more)
    assert gaps[:, trained:].max() < 1e-11


def test_a_half_turn_more_is_a_gap() -> None:
    # Trained at angles 0 and 2π/3 only: the third angle is new.
    gaps = feature_gaps(2 * math.pi / 3, 2, 3, phases=1)
    np.testing.assert_allclose(gaps, [[0, 0, 0]], atol=1e-12)  # cos 240° is cos 120°
    gaps = feature_gaps(2 * math.pi / 3, 2, 3, phases=4)
    # A quarter on: −sin 0, −sin 120°, −sin 240°.
    np.testing.assert_allclose(gaps[1], [0, 0, math.sin(math.pi / 3)], atol=1e-12)


def test_the_paper_s_claims_at_posgen_s_lengths() -> None:
    arrays, numbers = computed("feature-gap")
    for name in ("resonance_rope", "resonance_yarn"):
        assert numbers[f"gap_precritical_{name}"] < 1e-10
    for name in ("rope", "yarn"):
        assert numbers[f"gap_precritical_{name}"] > 0.05
    assert not arrays["by_position"][:, :64].any()
    assert arrays["by_position"][0, 64:].min() > 0.01
    assert np.isclose(arrays["wavelengths"][1], np.round(arrays["wavelengths"][0])).all()
    assert (arrays["printed"] <= arrays["greatest"] + 1e-15).all()


def test_embeddings_without_a_pair_that_turns_in_time_have_no_mean() -> None:
    options: dict[str, Any] = {"factor": 8.0, "train_length": 4, "length": 8}
    arrays, numbers = computed("feature-gap", embeddings=["pi", "rope"], **options)
    assert np.isnan(arrays["by_position"]).all()  # RoPE's fastest wavelength is 6.3
    assert set(numbers) == {"gap_postcritical_pi", "gap_postcritical_rope"}


@given(st.floats(0, 7), st.integers(1, 10), st.integers(1, 10))
def test_gaps_around_the_circle(omega: float, trained: int, more: int) -> None:
    angle = angles(omega, trained + more)
    assert ((angle >= 0) & (angle < 2 * math.pi)).all()
    for n, gap in enumerate(angle_gaps(angle, trained)):
        # The angle between two unit vectors.
        right = min(abs(math.remainder((n - m) * omega, 2 * math.pi)) for m in range(trained))
        assert gap == pytest.approx(right, abs=1e-8)


def test_figure_1() -> None:
    arrays, numbers = computed("rotation-angles")
    exact = 2 * math.pi * 10_000 ** (12 / 64)
    assert numbers["wavelength_rope"] == pytest.approx(exact)
    assert numbers["wavelength_resonance_rope"] == round(exact) == 35
    assert numbers["gap_resonance_rope"] < 1e-12
    # Position 71 stands 2 turns and 0.33 tokens on, 0.33 of a step from the first one.
    assert numbers["gap_rope"] == pytest.approx((71 - 2 * exact) * 2 * math.pi / exact, rel=0.01)
    assert not arrays["gaps"][:, :64].any()


def test_whole_turns_are_angle_0() -> None:
    found = angles(2 * math.pi / 35, 700)
    np.testing.assert_allclose(found[::35], 0, atol=1e-9)
    assert found.max() < 2 * math.pi * 34.5 / 35


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"embeddings": []}, r"embeddings: found \[\], needs at least one"),
        ({"embeddings": ["rope", "rope"]}, r"embeddings\[1\]: names rope twice"),
        ({"embeddings": ["rope", "resonance"]}, r"embeddings\[1\]"),
        ({"embeddings": ["rope", "alibi"]}, r"embeddings\[1\]: found 'alibi'"),
        ({"embeddings": ["rope", "fope"]}, r"embeddings\[1\]: found 'fope', needs one that"),
        ({"embeddings": ["dynamic-ntk"]}, "at a fixed frequency"),
        ({"embeddings": ["random-rope"]}, "at a fixed frequency"),
        ({"length": 64}, "length: found 64, needs more than train_length 64"),
        ({"head_dim": 7}, "7"),
        ({"factor": 1.0}, "factor: found 1.0"),
        ({"factor": 2.0, "embeddings": ["rope"]}, "factor: found 2, but none of the embeddings"),
        ({"lenght": 64}, "did you mean 'length'"),
    ],
)
def test_refusals_of_feature_gap(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_analysis({"type": "feature-gap", **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pair": 32}, "pair: found 32, needs less than head_dim/2 = 32"),
        ({"pair": -1}, "pair"),
        ({"length": 64}, "length: found 64, needs more than train_length 64"),
        ({"head_dim": 65}, "65"),
    ],
)
def test_refusals_of_rotation_angles(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_analysis({"type": "rotation-angles", **options})
