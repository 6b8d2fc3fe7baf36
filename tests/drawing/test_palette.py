"""Colours: seen against the paper, told apart with every kind of colour vision, kept by label."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fope_lab.drawing.svg import COLOURS, DASHES, FAMILIAR, assign_looks

PAPERS = ("#ffffff", "#14171b")
# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB
VISION = {
    "typical": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}


def linear(colour: str) -> NDArray[np.float64]:
    values = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb: NDArray[np.float64]) -> NDArray[np.float64]:
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ np.clip(rgb, 0, 1) / np.array([0.9505, 1.0, 1.089])
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("paper", [0, 1])
def test_contrast_with_the_paper(paper: int) -> None:
    def luminance(colour: str) -> float:
        return float(linear(colour) @ [0.2126, 0.7152, 0.0722])

    for pair in COLOURS:
        low, high = sorted((luminance(pair[paper]), luminance(PAPERS[paper])))
        assert (high + 0.05) / (low + 0.05) >= 3.0, pair[paper]  # WCAG 2.1, 1.4.11


@pytest.mark.parametrize("paper", [0, 1])
@pytest.mark.parametrize(
    ("vision", "distance"),
    [("typical", 30), ("protanopia", 24), ("deuteranopia", 24), ("tritanopia", 14)],
)
def test_colours_differ_for_every_vision(paper: int, vision: str, distance: float) -> None:
    seen = [lab(np.array(VISION[vision]) @ linear(pair[paper])) for pair in COLOURS]
    for (i, first), (j, second) in itertools.combinations(enumerate(seen), 2):
        assert np.linalg.norm(first - second) >= distance, (COLOURS[i], COLOURS[j])


@given(st.lists(st.text(max_size=4), max_size=len(COLOURS) * len(DASHES), unique=True))
def test_labels_look_different(labels: list[str]) -> None:
    looks = assign_looks(labels)
    assert len({(look.colour, look.dash) for look in looks.values()}) == len(labels)


@given(st.lists(st.sampled_from([*FAMILIAR, "mine", "yours"])))
def test_familiar_labels_always_have_their_colour(labels: list[str]) -> None:
    for label, look in assign_looks(labels).items():
        if label in FAMILIAR:
            assert look == assign_looks([label])[label]
