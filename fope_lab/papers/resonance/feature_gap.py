"""The distance of rotated features beyond the trained length from all features seen in training.

Wang et al. (Resonance RoPE), arXiv 2403.00071, §4: Eq. 8 and Theorem 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray

from fope_lab.analysis.base import Analysis, Arrays, NumberWords, Progress, Subject
from fope_lab.analysis.rotation import Rotation, rotation
from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.problems import Problem
from fope_lab.data.problems import DataError
from fope_lab.embeddings import parse_embedding

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PHASES = 64
PARTS = ("precritical", "postcritical")
"""The pairs that complete a turn within the trained length, and those that rotate more slowly."""


def feature_gaps(
    frequency: float, train_length: int, length: int, phases: int = PHASES
) -> NDArray[np.float64]:
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


def printed_gap(gaps: NDArray[np.float64], train_length: int) -> float:
    """Return Eq. 8 as printed: the maximum over x of the minimum over m and n ≥ train_length."""
    return float(gaps[:, train_length:].min(axis=1).max())


def greatest_gap(gaps: NDArray[np.float64], train_length: int) -> float:
    """Return the maximum over x and n ≥ train_length of the minimum over m, which is 0 by
    Theorem 1."""
    return float(gaps[:, train_length:].max())


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

    embeddings: Annotated[list[str] | tuple[str, ...], Doc("The presets that are compared.")] = (
        "rope",
        "resonance-rope",
        "yarn",
        "resonance-yarn",
    )
    head_dim: Annotated[int, Interval(ge=2), Doc("The dimensions of a head.")] = 64
    base: Annotated[float, Interval(gt=1), Doc("The base of RoPE's frequencies (θ).")] = 10_000.0
    train_length: Annotated[int, Interval(ge=2), Doc("The trained length, in tokens.")] = 64
    length: Annotated[int, Interval(ge=3), Doc("The number of positions, in tokens.")] = 256
    factor: Annotated[
        Annotated[float, Interval(gt=1)] | None,
        Doc("The factor of presets that need one; the default is length / train_length."),
    ] = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "embeddings", tuple(self.embeddings))
        problems = []
        if not self.embeddings:
            problems.append(Problem(("embeddings",), "found none, needs at least one"))
        for name in dict.fromkeys(self.embeddings):
            if self.embeddings.count(name) > 1:
                problems.append(Problem(("embeddings",), f"found {name!r} twice"))
        if self.length <= self.train_length:
            message = f"found {self.length}, needs more than train_length {self.train_length}"
            problems.append(Problem(("length",), message))
        if problems:
            raise DataError(problems)
        rotations = self.rotations()
        for index, (name, candidate) in enumerate(rotations.items()):
            definition = parse_embedding(candidate.spec)
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

    def compute(self, subject: Subject | None, progress: Progress) -> Arrays:
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
                by_pair["printed"][row, pair] = printed_gap(gaps, self.train_length)
                by_pair["greatest"][row, pair] = greatest_gap(gaps, self.train_length)
                if rotary.wavelengths[pair] < self.train_length:
                    turning.append(gaps.max(axis=0))
                progress(row * pairs + pair + 1, len(rotations) * pairs)
            if turning:
                by_position[row] = np.mean(turning, axis=0)
        return {**by_pair, "by_position": by_position}

    def _parts(
        self, wavelengths: NDArray[np.float64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return masks of the pairs that complete a turn within the trained length, and of those
        that rotate more slowly."""
        before = wavelengths < self.train_length
        return before, ~before & np.isfinite(wavelengths)

    @property
    def number_names(self) -> tuple[str, ...]:
        """The names of all numbers that `numbers` can return."""
        names = [name.replace("-", "_") for name in self.embeddings]
        return tuple(f"gap_{part}_{name}" for name in names for part in PARTS)

    number_words = NumberWords(
        {
            "gap_precritical_{embedding}": (
                "greatest feature gap of {embedding}, pairs that complete a turn in training"
            ),
            "gap_postcritical_{embedding}": (
                "greatest feature gap of {embedding}, pairs that rotate more slowly"
            ),
        },
    )

    def numbers(self, arrays: Arrays) -> dict[str, float]:
        """Return each embedding's greatest gap among the pairs that complete a turn within the
        trained length (pre-critical), and among those that rotate more slowly (post-critical)."""
        metrics = {}
        for row, name in enumerate(self.embeddings):
            parts = self._parts(arrays["wavelengths"][row])
            for part, pairs in zip(PARTS, parts, strict=True):
                if pairs.any():
                    key = f"gap_{part}_{name.replace('-', '_')}"
                    metrics[key] = float(arrays["greatest"][row, pairs].max())
        return metrics

    def draw(self, arrays: Arrays) -> Figure:
        """Draw the greatest gap of each pair, separately for the pairs that complete a turn within
        the trained length and for the others, and the mean gap of the former by position."""
        from fope_lab.drawing.panels import curve, legend, panels
        from fope_lab.drawing.svg import DASHED

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
