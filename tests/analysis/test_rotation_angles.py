"""Angles of one pair, and how far new ones are from the trained."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fope_lab.analysis import parse_analysis
from fope_lab.data.problems import DataError
from fope_lab.papers.resonance.rotation_angles import angle_gaps, angles


@given(st.floats(0, 7), st.integers(1, 10), st.integers(1, 10))
def test_gaps_around_the_circle(omega: float, trained: int, more: int) -> None:
    angle = angles(omega, trained + more)
    assert ((angle >= 0) & (angle < 2 * math.pi)).all()
    for n, gap in enumerate(angle_gaps(angle, trained)):
        # The angle between two unit vectors.
        right = min(abs(math.remainder((n - m) * omega, 2 * math.pi)) for m in range(trained))
        assert gap == pytest.approx(right, abs=1e-8)


def test_figure_1() -> None:
    analysis = parse_analysis("rotation-angles")
    arrays = analysis.compute(None, lambda done, total: None)
    numbers = analysis.numbers(arrays)
    exact = 2 * math.pi * 10_000 ** (12 / 64)
    assert numbers["wavelength_rope"] == pytest.approx(exact)
    assert numbers["wavelength_resonance_rope"] == round(exact) == 35
    assert numbers["gap_resonance_rope"] < 1e-12
    # Position 71 stands 2 turns and 0.33 tokens on, 0.33 of a step from the first one.
    assert numbers["gap_rope"] == pytest.approx((71 - 2 * exact) * 2 * math.pi / exact, rel=0.01)
    assert not arrays["gaps"][:, :64].any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pair": 32}, "pair: found 32, needs less than head_dim/2 = 32"),
        ({"pair": -1}, "pair"),
        ({"length": 64}, "length: found 64, needs more than train_length 64"),
        ({"head_dim": 65}, "65"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_analysis({"type": "rotation-angles", **options})


def test_whole_turns_are_angle_0() -> None:
    found = angles(2 * math.pi / 35, 700)
    np.testing.assert_allclose(found[::35], 0, atol=1e-9)
    assert found.max() < 2 * math.pi * 34.5 / 35
