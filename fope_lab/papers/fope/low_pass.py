"""RoPE as a low-pass filter: the response of its scores to each frequency of the hidden states.

Hua et al. (FoPE), arXiv 2412.17739, C.3: at integer positions, a frequency above π is
indistinguishable from one below it (Corollary C.3); RoPE's frequencies are all ≤ 1, most near 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray

from fope_lab.analysis.base import Analysis, Arrays, NumberWords, Progress, Subject
from fope_lab.analysis.rotation import OneRotation
from fope_lab.analysis.spectrum import angular, plain_ticks, power_spectrum
from fope_lab.config.annotations import Doc, Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BOUND = np.pi
"""The upper bound on the frequency of any function of integer positions (Corollary C.3)."""
HIGH_BAND = np.pi / 2
"""The lower limit of the paper's high-frequency band."""
LIMITS = (("a_tenth", 0.1), ("one", 1.0), ("half_pi", HIGH_BAND))
"""The frequencies up to which the pairs and the power are summed, and their names."""


def alias(frequency: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the frequencies in [0, π] whose cosines are equal at all integer positions."""
    within = frequency % (2 * np.pi)
    return np.minimum(within, 2 * np.pi - within)


@dataclass(frozen=True, kw_only=True)
class LowPass(
    OneRotation,
    Analysis,
    name="low-pass",
    source="Hua et al. (FoPE), arXiv 2412.17739, C.3",
    says=(
        "No function of integer positions has a frequency above π; RoPE's frequencies are at most 1"
        " and crowd near 0, so attention is a low-pass filter."
    ),
    needs="nothing",
):
    """The frequencies of an embedding, and the response of its scores to each frequency up to π."""

    embedding: Annotated[str, Doc("The preset of the embedding.")] = "rope"
    head_dim: Annotated[int, Interval(ge=2), Doc("The dimensions of a head.")] = 128
    base: Annotated[float, Interval(gt=1), Doc("The base of RoPE's frequencies (θ).")] = 10_000.0
    length: Annotated[
        int, Interval(ge=16), Doc("The trained length in tokens, and the number of distances.")
    ] = 4096

    def compute(self, subject: Subject | None, progress: Progress) -> Arrays:
        """Compute `frequencies` (head_dim/2,) in radians per token; `omega` and `power`
        (length/2 + 1,), the spectrum of the scores of all-ones vectors, which is the response to a
        wave of each frequency; and `aliases` (head_dim/2,), the greatest difference between
        cos((2π − ω)n) and cos(ωn) over the distances n."""
        rotary = self.rotation()
        scores = self.turned().real.sum(axis=0)
        beyond = 2 * np.pi - rotary.frequencies
        waves, theirs = (
            np.cos(omega[:, None] * np.arange(self.length)) for omega in (beyond, alias(beyond))
        )
        return {
            "frequencies": rotary.frequencies,
            "omega": angular(self.length),
            "power": power_spectrum(scores),
            "aliases": np.abs(waves - theirs).max(axis=1),
        }

    @property
    def number_names(self) -> tuple[str, ...]:
        """The names of all numbers that `numbers` can return."""
        limits = [name for name, _ in LIMITS]
        up_to = (f"{what}_up_to_{limit}" for limit in limits for what in ("pairs", "power"))
        return ("highest_frequency", "bound", *up_to, "alias_difference")

    number_words = NumberWords(
        {
            "highest_frequency": "highest frequency, radians per token",
            "bound": "bound of any frequency, radians per token",
            "pairs_up_to_{limit}": "pairs up to a frequency of {limit}, share",
            "power_up_to_{limit}": "power up to a frequency of {limit}, share",
            "alias_difference": "greatest difference of a frequency above π from its alias",
        },
        {
            "a_tenth": "0.1",
            "one": "1",
            "half_pi": "π/2",
        },
    )

    def numbers(self, arrays: Arrays) -> dict[str, float]:
        """Return the highest frequency and its bound; the shares of the pairs and of the power up
        to 0.1, 1 and π/2; and the greatest difference of frequencies above π from their aliases."""
        frequencies, omega, power = (arrays[name] for name in ("frequencies", "omega", "power"))
        metrics = {"highest_frequency": float(frequencies.max()), "bound": BOUND}
        for name, limit in LIMITS:
            metrics[f"pairs_up_to_{name}"] = float((frequencies <= limit).mean())
            metrics[f"power_up_to_{name}"] = float(power[omega <= limit].sum())
        metrics["alias_difference"] = float(arrays["aliases"].max())
        return metrics

    def draw(self, arrays: Arrays) -> Figure:
        """Draw the cumulative shares of pairs and of power by frequency, and the power itself."""
        from fope_lab.drawing.panels import curve, panels
        from fope_lab.drawing.svg import DASHED

        omega, power = arrays["omega"], arrays["power"]
        pairs = (arrays["frequencies"] <= omega[:, None]).mean(axis=1)
        with panels(("Cumulative shares", "Response to each frequency")) as (figure, axes):
            curve(axes[0], pairs, 0, "share of pairs", x=omega)
            curve(axes[0], np.cumsum(power), 1, "share of power", x=omega)
            curve(axes[0], omega / BOUND, 3, "evenly spread", x=omega)
            axes[0].legend(frameon=False, fontsize=9, loc="lower right")
            curve(axes[1], np.maximum(power, 1e-20), 0, x=omega)
            axes[1].set_yscale("log")
            plain_ticks(axes[1], "y")
            for plot, label in zip(axes, ("share", "share of power"), strict=True):
                plot.axvline(HIGH_BAND, **DASHED)
                plot.set(xlabel="frequency, radians per token", ylabel=label, xlim=(0, BOUND))
                plot.set_xticks([0, 1, HIGH_BAND, BOUND], ["0", "1", "π/2", "π"])
        return figure
