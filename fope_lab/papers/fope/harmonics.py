"""What a linear layer and an activation function do to waves, and to scores that rely on them.

Hua et al. (FoPE), arXiv 2412.17739. §3.2: Eq. 7, and Lemma 3.1 with its proof in C.1, on spectra.
§3.1 and §5.6 with Fig. 3: two frequencies pass through a small MLP, whose sizes and weights the
paper does not give: they are ours here. Each dimension starts as a single wave; the MLP
(a 2 × 2 linear layer and an activation) turns it into a mixture. Queries and keys are this mixture,
so a dimension's true contribution to the score at distance n is the product of the mixture at 0 and
at n. RoPE knows the coefficient and assigns all of it to the dimension's own frequency (Eq. 3);
FoPE assigns it to a series (Eq. 11).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fope_lab.analysis.base import Analysis, Arrays, Floats, Progress, Seed
from fope_lab.config.annotations import Doc, Interval
from fope_lab.drawing.panels import curve, legend, panels
from fope_lab.drawing.svg import COLOURS, DASHED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACTIVATIONS: Mapping[str, Callable[[Floats], Floats]] = {
    "linear": np.array,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "square": np.square,
    "tanh": np.tanh,
}
Activation = Literal["linear", "relu", "silu", "square", "tanh"]
"""The name of an activation; `linear` is the identity, `square` the paper's example in C.1."""

# Of the spectra of Lemma 3.1
SAMPLES = 1024
"""The number of samples of a wave."""
CYCLES = (97, 40)
"""The cycles of the two waves in all samples."""
LEAK = 0.3
"""The share of the other wave that the linear layer adds to each."""
ORDER = 4
"""The highest j + k of the frequencies jω₁ ± kω₂ that are marked."""

# Of the scores of Fig. 3
PERIODS = (16.0, 42.0)
"""The periods of the two dimensions, in tokens."""
LEAKS = (0.4, 0.2)
"""The shares of the other dimension that are added to the first and to the second."""
TRAIN_LENGTH, LENGTH = 64, 128
"""The trained length and the number of distances, in tokens."""
DRAWS = 1000
"""The number of draws of FoPE's coefficients."""


def mixing(first_leak: float, second_leak: float) -> Floats:
    """Return the linear layer (2, 2) that mixes `leak` of the other dimension into each: 1 − leak
    of its own wave, and leak of the other's (σ in Eq. 6)."""
    return np.array([[1 - first_leak, first_leak], [second_leak, 1 - second_leak]])


def amplitudes(waves: Floats) -> Floats:
    """Return the amplitudes (…, length/2 + 1) of the cosines with 0, 1, … cycles in the length that
    make up waves (…, length). `length` is even."""
    heights = np.abs(np.fft.rfft(waves)) * 2 / waves.shape[-1]
    heights[..., [0, -1]] /= 2
    return heights


def combinations(first: int, second: int, length: int, order: int) -> NDArray[np.int64]:
    """Return the cycles in `length` of all frequencies j·first ± k·second with j + k ≤ order,
    aliased to the range from 0 to length/2 that integer positions can resolve."""
    steps = np.arange(order + 1)
    cycles = [
        abs(j * first + sign * k * second) % length
        for j in steps
        for k in steps[: order + 1 - j]
        for sign in (1, -1)
    ]
    return np.unique([min(cycle, length - cycle) for cycle in cycles]).astype(np.int64)


def share(spectrum: Floats, cycles: NDArray[np.int64]) -> float:
    """Return the share of the spectrum's energy at `cycles`, without its mean (0 cycles)."""
    energy = spectrum**2
    energy[0] = 0
    energy[-1] *= 2  # a wave at π is ±1 throughout, so it has twice the mean square of others
    return float(energy[cycles].sum() / energy.sum())


@dataclass(frozen=True, kw_only=True)
class Harmonics(
    Analysis,
    name="harmonics",
    source="Hua et al. (FoPE), arXiv 2412.17739, §3.2, Eq. 7 and Lemma 3.1",
    says=(
        "A linear layer mixes the frequencies of its inputs; an activation function adds the sums"
        " and differences of their multiples."
    ),
    needs="nothing",
):
    """Spectra of two waves: before a linear layer, after it, and after an activation function."""

    activation: Annotated[Activation, Doc("The activation function.")] = "silu"

    def compute(self, subject: None, progress: Progress) -> Arrays:
        """Compute the amplitudes (SAMPLES/2 + 1,) of the first of two dimensions, by cycles in all
        samples: `before` the layer, after the `linear` layer, and after the `activation`."""
        cycles = np.array(CYCLES)[:, None]
        waves = np.cos(2 * np.pi * cycles * np.arange(SAMPLES) / SAMPLES)
        mixed = mixing(LEAK, LEAK) @ waves
        stages = {
            "before": waves,
            "linear": mixed,
            "activation": ACTIVATIONS[self.activation](mixed),
        }
        return {name: amplitudes(stage[0]) for name, stage in stages.items()}

    @property
    def number_words(self) -> Mapping[str, str]:
        places = {
            "before": "before the linear layer",
            "linear": "after the linear layer",
            "activation": "after the activation",
        }
        return {
            **{
                f"share_outside_{name}_{at}": f"energy outside {what}, {where}, share"
                for at, where in places.items()
                for name, what in (
                    ("own", "the dimension's own frequency"),
                    ("both", "both frequencies"),
                )
            },
            "share_at_combinations": (
                "energy at sums and differences of multiples, after the activation, share"
            ),
        }

    def numbers(self, arrays: Arrays) -> dict[str, Any]:
        own, both = np.array(CYCLES[:1]), np.array(CYCLES)
        every = combinations(*CYCLES, SAMPLES, ORDER)
        metrics = {}
        for name in ("before", "linear", "activation"):
            metrics[f"share_outside_own_{name}"] = 1 - share(arrays[name], own)
            metrics[f"share_outside_both_{name}"] = 1 - share(arrays[name], both)
        metrics["share_at_combinations"] = share(arrays["activation"], every)
        return metrics

    def draw(self, arrays: Arrays) -> Figure:
        titles = ("One wave per dimension", "After a linear layer", f"After {self.activation}")
        omega = 2 * np.pi * np.arange(SAMPLES // 2 + 1) / SAMPLES
        with panels(titles) as (figure, axes):
            for plot, name in zip(axes, ("before", "linear", "activation"), strict=True):
                heights = arrays[name]
                seen = heights > heights.max() / 1000
                plot.vlines(omega[seen], 0, heights[seen], color=COLOURS[0][0], linewidth=1.6)
                plot.set(xlim=(0, np.pi), ylim=(0, None))
                plot.set(xlabel="frequency, radians per token", ylabel="amplitude")
            every = combinations(*CYCLES, SAMPLES, ORDER)
            axes[2].plot(
                omega[every],
                np.zeros(len(every)),
                linestyle="none",
                marker="^",
                markersize=5,
                color=COLOURS[1][0],
                clip_on=False,
                label=f"jω₁ ± kω₂, j + k ≤ {ORDER}",
            )
            axes[2].legend(frameon=False, fontsize=9, loc="upper right")
        return figure


def mixture(omegas: Floats, layer: Floats, activation: str, length: int) -> Floats:
    """Apply a linear layer (2, 2) and an activation to one wave per dimension, with frequencies
    `omegas` (2,) in radians per token: (2, length)."""
    waves = np.cos(omegas[:, None] * np.arange(length))
    return ACTIVATIONS[activation](layer @ waves)


def contributions(mixed: Floats) -> Floats:
    """Return the true contribution of each dimension at each distance, (dimensions, length).

    `mixed` is the mixture of frequencies in each dimension, (dimensions, length).
    """
    return mixed[:, :1] * mixed


def single(coefficients: Floats, omegas: Floats, length: int) -> Floats:
    """Return RoPE's contributions (dimensions, length): each coefficient has a single frequency
    (Eq. 3)."""
    return coefficients[:, None] * np.cos(omegas[:, None] * np.arange(length))


def series(coefficients: Floats, weights: Floats, frequencies: Floats, length: int) -> Floats:
    """Return FoPE's contributions (…, dimensions, length) for weights (…, dimensions, frequencies)
    that include the dimension's own frequency (Eq. 11)."""
    waves = np.cos(frequencies[:, None] * np.arange(length))
    return coefficients[:, None] * (weights @ waves)


def fitted(true: Floats, coefficients: Floats, frequencies: Floats, length: int) -> Floats:
    """Return the weights (dimensions, frequencies) of the series closest to `true` (dimensions, n)
    over the distances below `length`, by least squares."""
    waves = np.cos(frequencies[:, None] * np.arange(length))
    solved = np.linalg.lstsq(waves.T, (true[:, :length] / coefficients[:, None]).T, rcond=None)[0]
    return np.asarray(solved.T)


def error(estimate: Floats, true: Floats) -> Floats:
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

    activation: Annotated[Activation, Doc("The activation function of the MLP.")] = "silu"
    sigma: Annotated[
        float, Interval(ge=0), Doc("The standard deviation of the noise in the coefficients.")
    ] = 0.3
    seed: Seed = 0

    number_words: ClassVar[Mapping[str, str]] = {
        **{
            f"error_{name.lower()}_{at}": f"error of {name} {at} the trained length, relative"
            for name in ("RoPE", "FoPE")
            for at in ("within", "beyond")
        },
        "error_fope_drawn_median": "median error of FoPE with random coefficients, relative",
        "share_of_draws_closer_than_rope": ("random coefficients that are closer than RoPE, share"),
    }

    def compute(self, subject: None, progress: Progress) -> Arrays:
        """Compute the contributions `true`, `rope` and `fope` (3, length) of the two dimensions and
        their sum; and `drawn` (draws, 3), the errors of FoPE with random coefficients.

        FoPE's series has the two frequencies and 0. `fope` is fitted within the trained length; the
        coefficients of `drawn` are the identity plus N(0, sigma) noise, the paper's initialisation.
        """
        omegas = 2 * np.pi / np.array(PERIODS)
        frequencies = np.array([*omegas, 0.0])
        mixed = mixture(omegas, mixing(*LEAKS), self.activation, LENGTH)
        true, coefficients = contributions(mixed), mixed[:, 0] ** 2
        weights = fitted(true, coefficients, frequencies, TRAIN_LENGTH)
        noise = np.random.default_rng(self.seed).standard_normal((DRAWS, 2, 3))
        drawn = series(coefficients, np.eye(2, 3) + self.sigma * noise, frequencies, LENGTH)
        whole = _with_sum(true)
        return {
            "true": whole,
            "rope": _with_sum(single(coefficients, omegas, LENGTH)),
            "fope": _with_sum(series(coefficients, weights, frequencies, LENGTH)),
            "drawn": error(_with_sum(drawn), whole),
        }

    def numbers(self, arrays: Arrays) -> dict[str, Any]:
        """Errors are those of the summed score."""
        true, rope = arrays["true"][2], arrays["rope"][2]
        parts = {"within": slice(TRAIN_LENGTH), "beyond": slice(TRAIN_LENGTH, None)}
        metrics = {
            f"error_{name}_{where}": error(arrays[name][2, part], true[part])
            for name in ("rope", "fope")
            for where, part in parts.items()
        }
        drawn = arrays["drawn"][:, 2]
        return {
            **metrics,
            "error_fope_drawn_median": np.median(drawn),
            "share_of_draws_closer_than_rope": (drawn < error(rope, true)).mean(),
        }

    def draw(self, arrays: Arrays) -> Figure:
        names = ("true", "rope", "fope")
        titles = (
            f"First dimension (period {PERIODS[0]:g})",
            f"Second dimension (period {PERIODS[1]:g})",
            "Score: the sum of both",
        )
        labels = ("ground truth", "RoPE", "FoPE, fitted within the trained length")
        with panels(titles, columns=1, width=560, height=170) as (figure, axes):
            for row, plot in enumerate(axes):
                plot.axvline(TRAIN_LENGTH, **DASHED)
                for slot, (name, label) in enumerate(zip(names, labels, strict=True)):
                    curve(plot, arrays[name][row], (3, 0, 1)[slot], label)
                plot.lines[1].set_linewidth(3.5)  # the truth, under the others
                plot.set_ylabel("contribution")
            axes[2].set_xlabel("relative distance, tokens")
            legend(figure, axes[0])
        return figure


def _with_sum(parts: Floats) -> Floats:
    """Append the sum of contributions (…, 2, length) to them: (…, 3, length)."""
    return np.concatenate((parts, parts.sum(axis=-2, keepdims=True)), axis=-2)
