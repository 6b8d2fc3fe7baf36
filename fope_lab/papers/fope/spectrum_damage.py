"""Two frequencies pass through a small MLP; RoPE and FoPE approximate the resulting scores.

Hua et al. (FoPE), arXiv 2412.17739, §3.1 and §5.6 with Fig. 3. The paper gives no sizes or weights,
so they are options here. Each dimension starts as a single wave; the MLP (a 2 × 2 linear layer and
an activation) turns it into a mixture. Queries and keys are this mixture, so a dimension's true
contribution to the score at distance n is the product of the mixture at 0 and at n. RoPE knows the
coefficient and assigns all of it to the dimension's own frequency (Eq. 3); FoPE assigns it to a
series (Eq. 11).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray

from fope_lab.analysis.base import Analysis, Arrays, NumberWords, Progress, Subject
from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.problems import Problem
from fope_lab.data.problems import DataError
from fope_lab.papers.fope.harmonics import ACTIVATIONS, Activation, mixing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]


def mixture(omegas: Array, layer: Array, activation: str, length: int) -> Array:
    """Apply a linear layer (2, 2) and an activation to one wave per dimension, with frequencies
    `omegas` (2,) in radians per token: (2, length)."""
    waves = np.cos(omegas[:, None] * np.arange(length))
    return ACTIVATIONS[activation](layer @ waves)


def contributions(mixed: Array) -> Array:
    """Return the true contribution of each dimension at each distance, (dimensions, length).

    `mixed` is the mixture of frequencies in each dimension, (dimensions, length).
    """
    return mixed[:, :1] * mixed


def single(coefficients: Array, omegas: Array, length: int) -> Array:
    """Return RoPE's contributions (dimensions, length): each coefficient has a single frequency
    (Eq. 3)."""
    return coefficients[:, None] * np.cos(omegas[:, None] * np.arange(length))


def series(coefficients: Array, weights: Array, frequencies: Array, length: int) -> Array:
    """Return FoPE's contributions (…, dimensions, length) for weights (…, dimensions, frequencies)
    that include the dimension's own frequency (Eq. 11)."""
    waves = np.cos(frequencies[:, None] * np.arange(length))
    return coefficients[:, None] * (weights @ waves)


def fitted(true: Array, coefficients: Array, frequencies: Array, length: int) -> Array:
    """Return the weights (dimensions, frequencies) of the series closest to `true` (dimensions, n)
    over the distances below `length`, by least squares."""
    waves = np.cos(frequencies[:, None] * np.arange(length))
    solved = np.linalg.lstsq(waves.T, (true[:, :length] / coefficients[:, None]).T, rcond=None)[0]
    return np.asarray(solved.T)


def error(estimate: Array, true: Array) -> Array:
    """Return the root mean square error over the distances, relative to the root mean square of
    `true`: (…, curves) for an estimate (…, curves, length)."""
    difference = np.sqrt(((estimate - true) ** 2).mean(axis=-1))
    return np.asarray(difference / np.sqrt((true**2).mean(axis=-1)))


@dataclass(frozen=True, kw_only=True)
class SpectrumDamage(
    Analysis,
    name="spectrum-damage",
    source="Hua et al. (FoPE), arXiv 2412.17739, Fig. 3",
    says=(
        "After an MLP, each dimension contains several frequencies; a series of frequencies (FoPE)"
        " is closer to the true scores than the single frequency of RoPE."
    ),
    needs="nothing",
):
    """Scores of two dimensions after an MLP: the true scores, RoPE's and FoPE's."""

    first_period: Annotated[
        float, Interval(gt=2), Doc("The period of the first dimension, in tokens.")
    ] = 16.0
    second_period: Annotated[
        float, Interval(gt=2), Doc("The period of the second dimension, in tokens.")
    ] = 42.0
    first_leak: Annotated[
        float,
        Interval(ge=0, le=1),
        Doc("The share of the second dimension that is added to the first."),
    ] = 0.4
    second_leak: Annotated[
        float,
        Interval(ge=0, le=1),
        Doc("The share of the first dimension that is added to the second."),
    ] = 0.2
    activation: Annotated[Activation, Doc("The activation function of the MLP.")] = "silu"
    train_length: Annotated[int, Interval(ge=8), Doc("The trained length, in tokens.")] = 64
    length: Annotated[int, Interval(ge=16), Doc("The number of distances, in tokens.")] = 128
    sigma: Annotated[
        float, Interval(ge=0), Doc("The standard deviation of the noise in the coefficients.")
    ] = 0.3
    draws: Annotated[int, Interval(ge=1), Doc("The number of draws of FoPE's coefficients.")] = 1000
    seed: Annotated[int, Interval(ge=0), Doc("The seed of all random draws.")] = 0

    def __post_init__(self) -> None:
        if self.length <= self.train_length:
            message = f"found {self.length}, needs more than train_length {self.train_length}"
            raise DataError(Problem(("length",), message))
        if self.first_period == self.second_period:
            message = f"found {self.second_period:g}, which is first_period: needs another"
            raise DataError(Problem(("second_period",), message))

    def compute(self, subject: Subject | None, progress: Progress) -> Arrays:
        """Compute the contributions `true`, `rope` and `fope` (3, length) of the two dimensions and
        their sum; and `drawn` (draws, 3), the errors of FoPE with random coefficients.

        FoPE's series has the two frequencies and 0. `fope` is fitted within the trained length; the
        coefficients of `drawn` are the identity plus N(0, sigma) noise, the paper's initialisation.
        """
        omegas = 2 * np.pi / np.array([self.first_period, self.second_period])
        frequencies = np.array([*omegas, 0.0])
        layer = mixing(self.first_leak, self.second_leak)
        mixed = mixture(omegas, layer, self.activation, self.length)
        true, coefficients = contributions(mixed), mixed[:, 0] ** 2
        weights = fitted(true, coefficients, frequencies, self.train_length)
        noise = np.random.default_rng(self.seed).standard_normal((self.draws, 2, 3))
        drawn = series(coefficients, np.eye(2, 3) + self.sigma * noise, frequencies, self.length)
        whole = _with_sum(true)
        return {
            "true": whole,
            "rope": _with_sum(single(coefficients, omegas, self.length)),
            "fope": _with_sum(series(coefficients, weights, frequencies, self.length)),
            "drawn": error(_with_sum(drawn), whole),
        }

    @property
    def number_names(self) -> tuple[str, ...]:
        """The names of all numbers that `numbers` can return."""
        errors = (f"error_{name}_{at}" for name in ("rope", "fope") for at in ("within", "beyond"))
        return (*errors, "error_fope_drawn_median", "share_of_draws_closer_than_rope")

    number_words = NumberWords(
        {
            "error_fope_drawn_median": ("median error of FoPE with random coefficients, relative"),
            "error_{embedding}_{where}": (
                "error of {embedding} {where} the trained length, relative"
            ),
            "share_of_draws_closer_than_rope": (
                "random coefficients that are closer than RoPE, share"
            ),
        },
        {
            "rope": "RoPE",
            "fope": "FoPE",
        },
    )

    def numbers(self, arrays: Arrays) -> dict[str, float]:
        """Return the relative errors of the summed score within and beyond the trained length; and
        for random coefficients, the median error and the share of draws closer than RoPE."""
        true, rope = arrays["true"][2], arrays["rope"][2]
        parts = {"within": slice(self.train_length), "beyond": slice(self.train_length, None)}
        metrics = {
            f"error_{name}_{where}": float(error(arrays[name][2, part], true[part]))
            for name in ("rope", "fope")
            for where, part in parts.items()
        }
        drawn = arrays["drawn"][:, 2]
        return {
            **metrics,
            "error_fope_drawn_median": float(np.median(drawn)),
            "share_of_draws_closer_than_rope": float((drawn < error(rope, true)).mean()),
        }

    def draw(self, arrays: Arrays) -> Figure:
        """Draw the first dimension, the second and their sum, as in the paper."""
        from fope_lab.drawing.panels import curve, legend, panels
        from fope_lab.drawing.svg import DASHED

        names = ("true", "rope", "fope")
        titles = (
            f"First dimension (period {self.first_period:g})",
            f"Second dimension (period {self.second_period:g})",
            "Score: the sum of both",
        )
        labels = ("ground truth", "RoPE", "FoPE, fitted within the trained length")
        with panels(titles, columns=1, width=560, height=170) as (figure, axes):
            for row, plot in enumerate(axes):
                plot.axvline(self.train_length, **DASHED)
                for slot, (name, label) in enumerate(zip(names, labels, strict=True)):
                    curve(plot, arrays[name][row], (3, 0, 1)[slot], label)
                plot.lines[1].set_linewidth(3.5)  # the truth, under the others
                plot.set_ylabel("contribution")
            axes[2].set_xlabel("relative distance, tokens")
            legend(figure, axes[0])
        return figure


def _with_sum(parts: Array) -> Array:
    """Append the sum of contributions (…, 2, length) to them: (…, 3, length)."""
    return np.concatenate((parts, parts.sum(axis=-2, keepdims=True)), axis=-2)
