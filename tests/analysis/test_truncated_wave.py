"""Truncated waves against a padded FFT, sine integrals, and waves of whole cycles."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import sici

from fope_lab.analysis import parse_analysis
from fope_lab.data.problems import DataError
from fope_lab.drawing.svg import standalone_svg
from fope_lab.papers.fope.truncated_wave import (
    TruncatedWave,
    amplitude,
    printed_noise,
    share_beyond,
    whole_cycles,
)


def computed(**options: Any) -> tuple[dict[str, Any], dict[str, float]]:
    analysis = parse_analysis({"type": "truncated-wave", **options})
    arrays = dict(analysis.compute(None, lambda done, total: None))
    return arrays, analysis.numbers(arrays)


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


@pytest.mark.parametrize("cycles", [0.01, 0.3, 1.0, 5.0])
def test_long_waves_have_the_share_of_sine_integrals(cycles: float) -> None:
    """∫ (sin x / x)² from 0 to a is Si(2a) − sin²(a)/a, and π/2 in all."""
    length = 4096
    omega = 2 * math.pi * cycles / length
    a = omega / 2 * length / 2
    si, _ = sici(2 * a)
    expected = 1 - 2 / math.pi * (si - math.sin(a) ** 2 / a)
    found = float(share_beyond(np.array([omega / 2]), length)[0])
    assert found == pytest.approx(expected, abs=1e-4)


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
    arrays, numbers = computed()
    # 512 tokens: the pairs below 2π/512 of 10,000^(−i/32), from the 16th on.
    assert numbers["undertrained"] == 16
    assert (arrays["cycles"][:16] > 0).all()
    assert (arrays["cycles"][16:] == 0).all()
    assert numbers["cycles_fastest"] == 81
    assert numbers["elsewhere_fastest"] < 0.01
    assert numbers["elsewhere_undertrained"] > 0.5 > numbers["elsewhere_trained"]
    assert (arrays["remainder"][16:] == 512).all()


def test_its_figure_and_its_refusals() -> None:
    analysis = TruncatedWave(head_dim=16, length=64)
    svg = standalone_svg(
        analysis.draw(analysis.compute(None, lambda done, total: None)),
        analysis.name,
        analysis.says,
    )
    text = " ".join(ET.fromstring(svg).itertext())
    assert "power at other frequencies" in text
    assert "pair 0, noise by Eq. 10" in text
    _, clipped = computed(embedding="fope-cf", head_dim=16, length=64)
    assert clipped["undertrained"] == 0
    assert "elsewhere_undertrained" not in clipped
    with pytest.raises(DataError, match="needs an embedding that rotates"):
        parse_analysis({"type": "truncated-wave", "embedding": "alibi"})
