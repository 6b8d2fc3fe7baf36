"""What positions beyond the trained length show a model that it has not seen in training.

Wang et al. (Resonance RoPE), arXiv 2403.00071, §4: the gaps of rotated features, Eq. 8 and Theorem
1; the angles of a pair, Fig. 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import MinLen
from numpy.typing import NDArray

from fope_lab.analysis.base import Analysis, Arrays, Floats, Progress
from fope_lab.analysis.rotation import Base, HeadDim, Positions, Rotation, TrainLength, rotation
from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.checks import EachOnce
from fope_lab.config.problems import Problem
from fope_lab.data.problems import DataError
from fope_lab.drawing.panels import curve, legend, panels
from fope_lab.drawing.svg import COLOURS, DASHED, GRID

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PHASES = 64
PARTS = {
    "precritical": "pairs that complete a turn in training",
    "postcritical": "pairs that rotate more slowly",
}
METHODS = {"rope": "rope", "resonance-rope": "resonance_rope"}
"""The presets that are compared, with their names in numbers."""
TURN = 2 * np.pi
SHOWN = 7
"""The number of angle steps that a figure shows, few enough to see differences within a step."""


def feature_gaps(frequency: float, train_length: int, length: int, phases: int = PHASES) -> Floats:
    """Return min |f(x, m) − f(x, n)| over positions m < train_length, for the vectors x of a pair
    and the positions n: (phases, length).

    x runs over the unit circle. For x = (cos φ, sin φ) at `phases` values of φ, rotated at
    `frequency` ω (radians per token), the first feature is cos(ωn + φ); the second is the first
    feature of the vector a quarter turn behind, so it needs no computation of its own.
    """
    phi = np.arange(phases) * 2 * np.pi / phases
    features = np.cos(np.arange(length) * frequency + phi[:, None])
    gaps = np.empty_like(features)
    for i in range(phases):
        seen = np.sort(features[i, :train_length])
        place = np.searchsorted(seen, features[i])
        below = features[i] - seen[np.maximum(place - 1, 0)]
        above = seen[np.minimum(place, train_length - 1)] - features[i]
        gaps[i] = np.minimum(np.abs(below), np.abs(above))
    return gaps


@dataclass(frozen=True, kw_only=True)
class FeatureGap(
    Analysis,
    name="feature-gap",
    source="Wang et al. (Resonance RoPE), arXiv 2403.00071, Eq. 8 and Theorem 1",
    says=(
        "Integer wavelengths close the feature gap of every pair that completes a turn within the"
        " trained length; RoPE and YaRN leave a gap."
    ),
    needs="nothing",
):
    """Feature gaps (Eq. 8) of several embeddings, by wavelength and by position."""

    embeddings: Annotated[
        tuple[str, ...], MinLen(1), EachOnce(), Doc("The presets that are compared.")
    ] = ("rope", "resonance-rope", "yarn", "resonance-yarn")
    head_dim: HeadDim = 64
    base: Base = 10_000.0
    train_length: TrainLength = 64
    length: Positions = 256
    factor: Annotated[
        Annotated[float, Interval(gt=1)] | None,
        Doc("The factor of presets that need one; the default is length / train_length."),
    ] = None

    def __post_init__(self) -> None:
        if self.length <= self.train_length:
            message = f"found {self.length}, needs more than train_length {self.train_length}"
            raise DataError(Problem(("length",), message))
        rotations, problems = self.rotations(), []
        for index, (name, candidate) in enumerate(rotations.items()):
            definition = candidate.definition
            # The features of a series are not those of a single wave; random positions, and
            # frequencies that depend on the length, give other features in each sequence.
            if not (definition.shift_invariant and definition.keys_cacheable):
                message = f"found {name!r}, needs one that rotates each pair at a fixed frequency"
                problems.append(Problem(("embeddings", index), message))
        if problems:
            raise DataError(problems)
        needed = any("factor" in candidate.spec for candidate in rotations.values())
        if self.factor is not None and not needed:
            message = f"found {self.factor:g}, but none of the embeddings has a factor to set"
            raise DataError(Problem(("factor",), message))

    def rotations(self) -> dict[str, Rotation]:
        """Return the embeddings' rotations by name."""
        return {
            name: rotation(
                name,
                head_dim=self.head_dim,
                train_length=self.train_length,
                base=self.base,
                factor=self.factor or self.length / self.train_length,
                at=("embeddings", index),
            )
            for index, name in enumerate(self.embeddings)
        }

    def compute(self, subject: None, progress: Progress) -> Arrays:
        """Compute, for each embedding in order, `wavelengths`, `printed` and `greatest` gaps
        (embeddings, pairs), and `by_position` (embeddings, length): the maximum gap over x, as a
        mean over the pairs that complete a turn within the trained length; NaN if no pair does."""
        rotations = list(self.rotations().values())
        pairs = self.head_dim // 2
        by_pair = {
            name: np.zeros((len(rotations), pairs))
            for name in ("wavelengths", "printed", "greatest")
        }
        by_position = np.full((len(rotations), self.length), np.nan)
        for row, rotary in enumerate(rotations):
            by_pair["wavelengths"][row] = rotary.wavelengths
            turning = []
            for pair, frequency in enumerate(rotary.frequencies):
                gaps = feature_gaps(frequency, self.train_length, self.length)
                beyond = gaps[:, self.train_length :]
                by_pair["printed"][row, pair] = beyond.min(axis=1).max()  # Eq. 8 as printed
                by_pair["greatest"][row, pair] = beyond.max()  # which Theorem 1 says is 0
                if rotary.wavelengths[pair] < self.train_length:
                    turning.append(gaps.max(axis=0))
                progress(row * pairs + pair + 1, len(rotations) * pairs)
            if turning:
                by_position[row] = np.mean(turning, axis=0)
        return {**by_pair, "by_position": by_position}

    def _parts(self, wavelengths: Floats) -> tuple[NDArray[np.bool_], ...]:
        """Return masks of the pairs of each of PARTS."""
        before = wavelengths < self.train_length
        return before, ~before & np.isfinite(wavelengths)

    @property
    def number_words(self) -> Mapping[str, str]:
        return {
            f"gap_{part}_{name.replace('-', '_')}": f"greatest feature gap of {name}, {pairs}"
            for name in self.embeddings
            for part, pairs in PARTS.items()
        }

    def numbers(self, arrays: Arrays) -> dict[str, Any]:
        metrics = {}
        for row, name in enumerate(self.embeddings):
            parts = self._parts(arrays["wavelengths"][row])
            for part, pairs in zip(PARTS, parts, strict=True):
                if pairs.any():
                    key = f"gap_{part}_{name.replace('-', '_')}"
                    metrics[key] = arrays["greatest"][row, pairs].max()
        return metrics

    def draw(self, arrays: Arrays) -> Figure:
        titles = ("Pairs with a full turn", "Slower pairs", "Mean gap with a full turn")
        with panels(titles) as (figure, axes):
            for row, name in enumerate(self.embeddings):
                parts = self._parts(arrays["wavelengths"][row])
                for plot, pairs in zip(axes, parts, strict=False):
                    gaps = arrays["greatest"][row, pairs]
                    curve(plot, gaps, row, name, x=np.flatnonzero(pairs))
                curve(axes[2], arrays["by_position"][row], row)
            for plot in axes[:2]:
                plot.set(xlabel="pair", ylabel="greatest gap")
            axes[2].axvline(self.train_length, **DASHED)
            axes[2].set(xlabel="position", ylabel="gap")
            legend(figure, axes[0])
        return figure


def angles(frequency: float, length: int) -> Floats:
    """Return a pair's angles at positions 0 … length − 1: (length,) in radians, in [0, 2π).

    An angle that is just below a full turn because of rounding becomes 0.
    """
    turned = np.arange(length) * frequency % TURN
    return np.where(TURN - turned < 1e-9, 0.0, turned)


def angle_gaps(angle: Floats, train_length: int) -> Floats:
    """Return the distance of each angle (length,) on the circle, in radians, from the nearest of
    the first `train_length` angles: (length,)."""
    apart = np.abs(angle[:, None] - angle[:train_length])
    return np.minimum(apart, TURN - apart).min(axis=1)


@dataclass(frozen=True, kw_only=True)
class RotationAngles(
    Analysis,
    name="rotation-angles",
    source="Wang et al. (Resonance RoPE), arXiv 2403.00071, Fig. 1",
    says=(
        "With a non-integer wavelength, positions beyond the trained length have angles that never"
        " occurred in training; with Resonance RoPE, all angles did occur."
    ),
    needs="nothing",
):
    """Rotation angles of a pair at positions within and beyond the trained length."""

    pair: Annotated[
        int, Interval(ge=0), Doc("The pair of dimensions, counted from the fastest.")
    ] = 6
    head_dim: HeadDim = 64
    base: Base = 10_000.0
    train_length: TrainLength = 64
    length: Positions = 128

    def __post_init__(self) -> None:
        if self.pair >= self.head_dim // 2:
            message = f"found {self.pair}, needs less than head_dim/2 = {self.head_dim // 2}"
            raise DataError(Problem(("pair",), message))
        if self.length <= self.train_length:
            message = f"found {self.length}, needs more than train_length {self.train_length}"
            raise DataError(Problem(("length",), message))
        self.frequencies()

    def frequencies(self) -> Floats:
        """Return the pair's frequency under each of the methods: (2,) in radians per token."""
        sizes = {"head_dim": self.head_dim, "train_length": self.train_length, "base": self.base}
        pairs = [
            rotation(name, **sizes, at=("head_dim",)).frequencies[self.pair]  # type: ignore[arg-type]
            for name in METHODS
        ]
        return np.array(pairs)

    def compute(self, subject: None, progress: Progress) -> Arrays:
        """Compute, for RoPE and Resonance RoPE, `wavelengths` (2,) in tokens, and `angles` and
        `gaps` (2, length) in radians."""
        frequencies = self.frequencies()
        turned = np.stack([angles(frequency, self.length) for frequency in frequencies])
        return {
            "wavelengths": TURN / frequencies,
            "angles": turned,
            "gaps": np.stack([angle_gaps(row, self.train_length) for row in turned]),
        }

    @property
    def number_words(self) -> Mapping[str, str]:
        words: dict[str, str] = {}
        for name, key in METHODS.items():
            words[f"wavelength_{key}"] = f"wavelength of {name}, tokens"
            words[f"gap_{key}"] = f"greatest gap of {name} beyond the trained length, radians"
        return words

    def numbers(self, arrays: Arrays) -> dict[str, Any]:
        metrics = {}
        for row, key in enumerate(METHODS.values()):
            metrics[f"wavelength_{key}"] = arrays["wavelengths"][row]
            metrics[f"gap_{key}"] = arrays["gaps"][row, self.train_length :].max()
        return metrics

    def draw(self, arrays: Arrays) -> Figure:
        rope, resonance = arrays["wavelengths"]
        titles = (f"RoPE: wavelength {rope:.4g}", f"Resonance RoPE: wavelength {resonance:.4g}")
        parts = (("trained", slice(self.train_length)), ("new", slice(self.train_length, None)))
        positions = np.arange(self.length)
        with panels((*titles, "Distance to the nearest trained angle")) as (figure, axes):
            for row in range(2):
                angle, plot = arrays["angles"][row], axes[row]
                plot.grid(visible=False)
                plot.hlines(angle[: self.train_length], 0, self.length, color=GRID, linewidth=0.9)
                for slot, (label, part) in enumerate(parts):
                    plot.plot(
                        positions[part],
                        angle[part],
                        linestyle="none",
                        marker="os"[slot],
                        markersize=4,
                        color=COLOURS[slot][0],
                        label=f"{label} positions",
                    )
                step = TURN / float(arrays["wavelengths"][row])
                shown = (-0.5 * step, (SHOWN + 0.5) * step)
                plot.set(xlabel="position", ylabel="angle, radians", ylim=shown)
                curve(axes[2], arrays["gaps"][row], row, list(METHODS)[row])
            axes[2].set(xlabel="position", ylabel="gap, radians")
            axes[2].legend(frameon=False, fontsize=9, loc="upper left")
            legend(figure, axes[0])
        return figure
