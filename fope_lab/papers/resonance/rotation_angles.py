"""The angles of a pair within and beyond the trained length, for RoPE and Resonance RoPE.

Wang et al. (Resonance RoPE), arXiv 2403.00071, §4 with Fig. 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray

from fope_lab.analysis.base import Analysis, Arrays, NumberWords, Progress, Subject
from fope_lab.analysis.rotation import rotation
from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.problems import Problem
from fope_lab.data.problems import DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = ("rope", "resonance-rope")
TURN = 2 * np.pi
SHOWN = 7
"""The number of angle steps that a figure shows, few enough to see differences within a step."""


def angles(frequency: float, length: int) -> NDArray[np.float64]:
    """Return a pair's angles at positions 0 … length − 1: (length,) in radians, in [0, 2π).

    An angle that is just below a full turn because of rounding becomes 0.
    """
    turned = np.arange(length) * frequency % TURN
    return np.where(TURN - turned < 1e-9, 0.0, turned)


def angle_gaps(angle: NDArray[np.float64], train_length: int) -> NDArray[np.float64]:
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
    head_dim: Annotated[int, Interval(ge=2), Doc("The dimensions of a head.")] = 64
    base: Annotated[float, Interval(gt=1), Doc("The base of RoPE's frequencies (θ).")] = 10_000.0
    train_length: Annotated[int, Interval(ge=2), Doc("The trained length, in tokens.")] = 64
    length: Annotated[int, Interval(ge=3), Doc("The number of positions, in tokens.")] = 128

    def __post_init__(self) -> None:
        if self.pair >= self.head_dim // 2:
            message = f"found {self.pair}, needs less than head_dim/2 = {self.head_dim // 2}"
            raise DataError(Problem(("pair",), message))
        if self.length <= self.train_length:
            message = f"found {self.length}, needs more than train_length {self.train_length}"
            raise DataError(Problem(("length",), message))
        self.frequencies()

    def frequencies(self) -> NDArray[np.float64]:
        """Return the pair's frequency under each of the methods: (2,) in radians per token."""
        sizes = {"head_dim": self.head_dim, "train_length": self.train_length, "base": self.base}
        pairs = [
            rotation(name, **sizes, at=("head_dim",)).frequencies[self.pair]  # type: ignore[arg-type]
            for name in METHODS
        ]
        return np.array(pairs)

    def compute(self, subject: Subject | None, progress: Progress) -> Arrays:
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
    def number_names(self) -> tuple[str, ...]:
        """The names of all numbers that `numbers` can return."""
        names = [name.replace("-", "_") for name in METHODS]
        return tuple(f"{number}_{name}" for name in names for number in ("wavelength", "gap"))

    number_words = NumberWords(
        {
            "wavelength_{embedding}": "wavelength of {embedding}, tokens",
            "gap_{embedding}": "greatest gap of {embedding} beyond the trained length, radians",
        },
    )

    def numbers(self, arrays: Arrays) -> dict[str, float]:
        """Return the wavelengths in tokens, and the greatest gaps beyond the trained length in
        radians."""
        metrics = {}
        for row, name in enumerate(METHODS):
            key = name.replace("-", "_")
            metrics[f"wavelength_{key}"] = float(arrays["wavelengths"][row])
            metrics[f"gap_{key}"] = float(arrays["gaps"][row, self.train_length :].max())
        return metrics

    def draw(self, arrays: Arrays) -> Figure:
        """Draw the first steps of the circle, with a line for each trained angle, and the gaps."""
        from fope_lab.drawing.palette import COLOURS
        from fope_lab.drawing.panels import curve, legend, panels
        from fope_lab.drawing.svg import GRID

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
                curve(axes[2], arrays["gaps"][row], row, METHODS[row])
            axes[2].set(xlabel="position", ylabel="gap, radians")
            axes[2].legend(frameon=False, fontsize=9, loc="upper left")
            legend(figure, axes[0])
        return figure
