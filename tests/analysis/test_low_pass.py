"""Corollary C.3, and which frequencies RoPE answers to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fope_lab.analysis import parse_analysis
from fope_lab.data.problems import DataError
from fope_lab.papers.fope.low_pass import alias


def computed(**options: Any) -> tuple[dict[str, Any], dict[str, float]]:
    analysis = parse_analysis({"type": "low-pass", **options})
    arrays = dict(analysis.compute(None, lambda done, total: None))
    return arrays, analysis.numbers(arrays)


@given(st.floats(0, 50))
def test_every_frequency_has_an_alias_up_to_pi(omega: float) -> None:
    found = float(alias(np.array([omega]))[0])
    assert 0 <= found <= math.pi
    n = np.arange(40)
    np.testing.assert_allclose(np.cos(found * n), np.cos(omega * n), atol=1e-10)


def test_known_aliases() -> None:
    known = {0.5: 0.5, math.pi: math.pi, 4.0: 2 * math.pi - 4, 7.0: 7 - 2 * math.pi}
    np.testing.assert_allclose(alias(np.array(list(known))), list(known.values()))


def test_the_claims_of_c3() -> None:
    arrays, numbers = computed()
    assert numbers["highest_frequency"] == 1 < numbers["bound"] == math.pi
    # Pair i of 64 has 10^(−i/16): 48 of them are 0.1 or less.
    assert numbers["pairs_up_to_a_tenth"] == 48 / 64
    assert numbers["pairs_up_to_one"] == numbers["pairs_up_to_half_pi"] == 1
    assert numbers["power_up_to_half_pi"] == pytest.approx(1, abs=1e-9)
    assert numbers["power_up_to_a_tenth"] > 0.8
    assert numbers["alias_difference"] < 1e-9
    assert arrays["power"].sum() == pytest.approx(1)


def test_the_answer_peaks_at_the_embeddings_frequencies() -> None:
    arrays, _ = computed(head_dim=4, base=16.0, length=2048)  # 1 and 1/4
    peaks = arrays["omega"][np.argsort(arrays["power"])[-2:]]
    for omega in (1.0, 0.25):
        near = np.abs(arrays["omega"] - omega) < 0.01
        assert arrays["power"][near].sum() == pytest.approx(0.5, abs=0.01)
    assert np.all(np.min(np.abs(peaks[:, None] - [1.0, 0.25]), axis=1) < 0.004)


def test_refusals() -> None:
    with pytest.raises(DataError, match="embedding: found 'fire', needs an embedding that rotates"):
        parse_analysis({"type": "low-pass", "embedding": "fire"})
    with pytest.raises(DataError, match="length: found 8"):
        parse_analysis({"type": "low-pass", "length": 8})
