"""How far rotated features beyond the trained length lie from all that training has shown.

Wang et al. (Resonance RoPE), arXiv 2403.00071, §4: Eq. 8 and Theorem 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge, Gt
from numpy.typing import NDArray

from fope_lab.analysis.base import Analysis, Arrays, Progress, Subject
from fope_lab.analysis.rotation import Rotation, rotation
from fope_lab.config.problems import Problem
from fope_lab.data.problems import DataError
from fope_lab.embeddings import parse_embedding

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PHASES = 64


def feature_gaps(
    frequency: float, train_length: int, length: int, phases: int = PHASES
) -> NDArray[np.float64]:
    """|f(x, m) − f(x, n)|, the least over positions m < train_length: (phases, length) for the
    vectors x of a pair and the positions n.

    x runs over the unit circle: x = (cos φ, sin φ) at `phases` steps of φ, turned at `frequency`
    (radians per token), has cos(ωn + φ) as its first feature, and its second is the first of the
    vector a quarter of a turn behind.
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
    """Eq. 8 as printed: the greatest over x of the least over m and over n ≥ train_length."""
    return float(gaps[:, train_length:].min(axis=1).max())


def greatest_gap(gaps: NDArray[np.float64], train_length: int) -> float:
    """The greatest over x and over n ≥ train_length of the least over m: what Theorem 1 says is 0
    for every n."""
    return float(gaps[:, train_length:].max())


@dataclass(frozen=True, kw_only=True)
class FeatureGap(
    Analysis,
    name="feature-gap",
    source="Wang et al. (Resonance RoPE), arXiv 2403.00071, Eq. 8 and Theorem 1",
    says=(
        "Whole wavelengths close the feature gap of every pair that turns within the trained"
        " length; RoPE and YaRN leave one."
    ),
    needs="nothing",
):
    """Feature gaps (Eq. 8) of embeddings by wavelength, and by position."""

    embeddings: list[str] | tuple[str, ...] = (
        "rope",
        "resonance-rope",
        "yarn",
        "resonance-yarn",
    )
    head_dim: Annotated[int, Ge(2)] = 64
    base: Annotated[float, Gt(1)] = 10_000.0
    train_length: Annotated[int, Ge(2)] = 64
    length: Annotated[int, Ge(3)] = 256
    factor: Annotated[float, Gt(1)] | None = None
    """Of YaRN and its like; by default `length` over `train_length`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "embeddings", tuple(self.embeddings))
        problems = []
        if not self.embeddings:
            problems.append(Problem(("embeddings",), "found none, needs one at least"))
        for name in dict.fromkeys(self.embeddings):
            if self.embeddings.count(name) > 1:
                problems.append(Problem(("embeddings",), f"found {name!r} twice"))
        if self.length <= self.train_length:
            message = f"found {self.length}, needs more than train_length {self.train_length}"
            problems.append(Problem(("length",), message))
        if problems:
            raise DataError(problems)
        rotations = self.rotations()
        for index, (name, one) in enumerate(rotations.items()):
            definition = parse_embedding(one.spec)
            # A series has other features than one wave; drawn positions and frequencies that
            # change with the length have others in each sequence.
            if not (definition.shift_invariant and definition.keys_cacheable):
                message = f"found {name!r}, needs one that turns each pair at a fixed frequency"
                problems.append(Problem(("embeddings", index), message))
        if problems:
            raise DataError(problems)
        needed = any("factor" in one.spec for one in rotations.values())
        if self.factor is not None and not needed:
            message = f"found {self.factor:g}, but none of the embeddings has a factor to set"
            raise DataError(Problem(("factor",), message))

    def rotations(self) -> dict[str, Rotation]:
        """The embeddings by name."""
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
        """For each embedding, in their order: `wavelengths`, `printed` and `greatest` gaps
        (embeddings, pairs), and `by_position` (embeddings, length): the mean, over the pairs that
        turn within the trained length, of the greatest gap over x; NaN where there are none."""
        rotations = list(self.rotations().values())
        pairs = self.head_dim // 2
        found = {
            name: np.zeros((len(rotations), pairs))
            for name in ("wavelengths", "printed", "greatest")
        }
        by_position = np.full((len(rotations), self.length), np.nan)
        for row, one in enumerate(rotations):
            found["wavelengths"][row] = one.wavelengths
            turning = []
            for pair, frequency in enumerate(one.frequencies):
                gaps = feature_gaps(frequency, self.train_length, self.length)
                found["printed"][row, pair] = printed_gap(gaps, self.train_length)
                found["greatest"][row, pair] = greatest_gap(gaps, self.train_length)
                if one.wavelengths[pair] < self.train_length:
                    turning.append(gaps.max(axis=0))
                progress(row * pairs + pair + 1, len(rotations) * pairs)
            if turning:
                by_position[row] = np.mean(turning, axis=0)
        return {**found, "by_position": by_position}

    def numbers(self, arrays: Arrays) -> dict[str, float]:
        """Each embedding's greatest gap among the pairs that turn within the trained length
        (pre-critical), and among those that turn, but not within it (post-critical)."""
        found = {}
        for row, name in enumerate(self.embeddings):
            wavelengths = arrays["wavelengths"][row]
            before = wavelengths < self.train_length
            after = ~before & np.isfinite(wavelengths)
            for part, pairs in (("precritical", before), ("postcritical", after)):
                if pairs.any():
                    key = f"gap_{part}_{name.replace('-', '_')}"
                    found[key] = float(arrays["greatest"][row, pairs].max())
        return found

    def draw(self, arrays: Arrays) -> Figure:
        """The greatest gap of each pair, apart for those that turn within the trained length and
        for the others, and the mean gap of the former by position."""
        from fope_lab.drawing.panels import curve, legend, panels
        from fope_lab.drawing.svg import MUTED

        titles = ("Pairs that turn within the length", "Other pairs", "Mean gap of the former")
        positions = np.arange(self.length).tolist()
        with panels(titles) as (figure, axes):
            for row, name in enumerate(self.embeddings):
                wavelengths = arrays["wavelengths"][row]
                before = wavelengths < self.train_length
                after = ~before & np.isfinite(wavelengths)
                for plot, pairs in zip(axes, (before, after), strict=False):
                    gaps = arrays["greatest"][row, pairs].tolist()
                    curve(plot, np.flatnonzero(pairs).tolist(), gaps, row, name)
                curve(axes[2], positions, arrays["by_position"][row].tolist(), row)
            for plot in axes[:2]:
                plot.set_xlabel("pair")
                plot.set_ylabel("greatest gap")
            axes[2].axvline(self.train_length, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
            axes[2].set_xlabel("position")
            axes[2].set_ylabel("gap")
            legend(figure, axes[0])
        return figure
