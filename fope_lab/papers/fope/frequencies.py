"""The frequencies of a rotation: what they do to scores, and what a trained length leaves of them.

Hua et al. (FoPE), arXiv 2412.17739. A.2 with Fig. 8: Gaussian queries and keys with independent
entries of mean μ score, on average, μ² times what all-ones vectors score, so that the decay with
distance vanishes as μ goes to 0. C.3: at integer positions, a frequency above π is
indistinguishable from one below it (Corollary C.3); RoPE's are all ≤ 1, most near 0, which makes it
a low-pass filter. §3.3, Eq. 9–10 and C.2: a wave of frequency ω_m that is cut after N tokens has
α = ⌊N/N_m⌋ whole cycles of N_m = 2π/ω_m tokens, and the rest of its length adds other frequencies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fope_lab.analysis.base import Analysis, Arrays, Floats, Progress, Seed
from fope_lab.analysis.reading import PAIRS
from fope_lab.analysis.rotation import (
    Base,
    Distances,
    HeadDim,
    OneRotation,
    Preset,
    as_complex,
    undertrained,
)
from fope_lab.analysis.spectrum import angular, plain_ticks, power_spectrum
from fope_lab.config.annotations import Doc, Interval
from fope_lab.data.problems import DataError
from fope_lab.drawing.panels import curve, legend, panels
from fope_lab.drawing.svg import DASHED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEANS = (0.0, 0.1, 1.0)
"""The means of the entries of queries and keys (Fig. 8)."""
BOUND = np.pi
"""The upper bound on the frequency of any function of integer positions (Corollary C.3)."""
HIGH_BAND = np.pi / 2
"""The lower limit of the paper's high-frequency band."""
LIMITS = (("a_tenth", 0.1, "0.1"), ("one", 1.0, "1"), ("half_pi", HIGH_BAND, "π/2"))
"""The frequencies up to which the pairs and the power are summed, with their names."""
GRID = np.linspace(0.0, 3.0, 601)
"""The frequencies of a drawn spectrum, as multiples of the wave's own."""


def constant_scores(turned: NDArray[np.complex128]) -> Floats:
    """Return what each pair adds to the score of an all-ones query and key, divided by head_dim:
    (pairs, length), for the `turns` (pairs, length) of a head."""
    return turned.real / len(turned)


def mean_scores(queries: Floats, keys: Floats, turned: NDArray[np.complex128]) -> Floats:
    """Return the scores (length,) divided by head_dim, averaged over queries and keys (vectors,
    head_dim), for the `turns` (pairs, length) of a head.

    A score is linear in the product q̄·k of each pair, so only the mean of the products matters.
    """
    q, k = as_complex(queries), as_complex(keys)
    return np.asarray(((q.conj() * k).mean(axis=0) @ turned).real / queries.shape[-1])


@dataclass(frozen=True, kw_only=True)
class GaussianContribution(
    OneRotation,
    Analysis,
    name="gaussian-contribution",
    source="Hua et al. (FoPE), arXiv 2412.17739, Fig. 8",
    says=(
        "RoPE's decay with distance comes from its undertrained pairs; it weakens as the mean of"
        " queries and keys falls, and vanishes at a mean of 0."
    ),
    needs="nothing",
):
    """Mean scores by distance of Gaussian queries and keys of mean 0, 0.1 and 1."""

    embedding: Preset = "rope"
    head_dim: HeadDim = 128
    base: Base = 10_000.0
    length: Distances = 4096
    pairs: Annotated[
        int, Interval(ge=1), Doc("The number of random pairs of a query and a key.")
    ] = 1000
    seed: Seed = 0

    def compute(self, subject: None, progress: Progress) -> Arrays:
        """Compute `gaussian` (3, length), mean scores for entries of mean 0, 0.1 and 1 and variance
        1; `constant` (length,), the scores of all-ones vectors; and `undertrained` (length,), the
        contribution to these of the pairs that rotate but complete no turn in the trained length.
        """
        rotary = self.rotation()
        turned = self.turned()
        draw = np.random.default_rng(self.seed)
        q, k = draw.standard_normal((2, self.pairs, self.head_dim))
        by_pair = constant_scores(turned)
        slow = undertrained(rotary.frequencies, self.length)
        return {
            "gaussian": np.stack([mean_scores(mean + q, mean + k, turned) for mean in MEANS]),
            "constant": by_pair.sum(axis=0),
            "undertrained": by_pair[slow].sum(axis=0),
        }

    @property
    def number_words(self) -> Mapping[str, str]:
        entries = {f"mean_{mean:g}": f"entries of mean {mean:g}" for mean in MEANS}
        vectors = {
            "constant": "all-ones vectors",
            "undertrained": "undertrained pairs of all-ones vectors",
            "trained": "other pairs of all-ones vectors",
        }
        return {
            f"decay_{name.replace('.', '_')}": f"decay of the scores from near to far, {words}"
            for name, words in (entries | vectors).items()
        }

    def numbers(self, arrays: Arrays) -> dict[str, Any]:
        """Near and far are the first and the last eighth of the distances."""
        part = self.length // 8
        curves = {
            **{f"mean_{mean:g}": arrays["gaussian"][i] for i, mean in enumerate(MEANS)},
            "constant": arrays["constant"],
            "undertrained": arrays["undertrained"],
            "trained": arrays["constant"] - arrays["undertrained"],
        }
        return {
            f"decay_{name.replace('.', '_')}": scores[:part].mean() - scores[-part:].mean()
            for name, scores in curves.items()
        }

    def draw(self, arrays: Arrays) -> Figure:
        constant, undertrained = arrays["constant"], arrays["undertrained"]
        titles = [f"Gaussian, mean {mean:g}" for mean in MEANS]
        with panels((*titles, "Constant, by kind of pair"), columns=2) as (figure, axes):
            for plot, mean, scores in zip(axes, MEANS, arrays["gaussian"], strict=False):
                curve(plot, scores, 0, f"mean of {self.pairs} pairs")
                curve(plot, mean**2 * constant, 1, "expected: μ² of constant")
            curve(axes[3], undertrained, 4, "undertrained pairs")
            curve(axes[3], constant - undertrained, 2, "other pairs")
            axes[3].legend(frameon=False, fontsize=9)
            for plot in axes:
                plot.set(xlabel="relative distance, tokens", ylabel="score / head_dim")
            legend(figure, axes[0])
        return figure


def alias(frequency: Floats) -> Floats:
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

    embedding: Preset = "rope"
    head_dim: HeadDim = 128
    base: Base = 10_000.0
    length: Distances = 4096

    number_words: ClassVar[Mapping[str, str]] = {
        "highest_frequency": "highest frequency, radians per token",
        "bound": "bound of any frequency, radians per token",
        **{
            f"{what}_up_to_{name}": f"{what} up to a frequency of {limit}, share"
            for name, _, limit in LIMITS
            for what in ("pairs", "power")
        },
        "alias_difference": "greatest difference of a frequency above π from its alias",
    }

    def compute(self, subject: None, progress: Progress) -> Arrays:
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

    def numbers(self, arrays: Arrays) -> dict[str, Any]:
        frequencies, omega, power = (arrays[name] for name in ("frequencies", "omega", "power"))
        metrics = {"highest_frequency": frequencies.max(), "bound": BOUND}
        for name, limit, _ in LIMITS:
            metrics[f"pairs_up_to_{name}"] = (frequencies <= limit).mean()
            metrics[f"power_up_to_{name}"] = power[omega <= limit].sum()
        metrics["alias_difference"] = arrays["aliases"].max()
        return metrics

    def draw(self, arrays: Arrays) -> Figure:
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


def whole_cycles(frequencies: Floats, length: int) -> tuple[NDArray[np.int64], Floats]:
    """Return α, the number of whole cycles in `length` tokens, and N − αN_m, the tokens after them,
    for frequencies in radians per token that are not 0. Both are shaped like `frequencies`."""
    periods = 2 * np.pi / frequencies
    # A wave of exactly one cycle would have none by a rounding error of the division.
    cycles = np.floor(length / periods * (1 + 1e-12)).astype(np.int64)
    return cycles, np.maximum(length - cycles * periods, 0.0)


def printed_noise(delta: ArrayLike, remainder: float) -> Floats:
    """Return the second term of Eq. 10, sin[(N − αN_m)(ω − ω_m)]/(ω − ω_m), at differences of
    frequency in radians per token; at 0 it is N − αN_m."""
    return np.asarray(remainder * np.sinc(np.asarray(delta) * remainder / np.pi))


def amplitude(delta: ArrayLike, length: int) -> Floats:
    """Return |Σ e^{iΔn}| over n = 0 … length − 1: the exact spectrum of a wave at a difference Δ in
    radians per token from its own frequency. At 0 it is `length`."""
    half = np.asarray(delta, np.float64) / 2
    near = np.abs(np.sin(half)) < 1e-9
    safe = np.where(near, 1.0, np.sin(half))
    return np.asarray(np.where(near, length, np.abs(np.sin(length * half) / safe)))


def share_beyond(reach: Floats, length: int) -> Floats:
    """Return the share of the power of a truncated wave that is more than `reach` in radians per
    token from its own frequency, for each reach in (0, π].

    It is exact: the power |Σ e^{iΔn}|² is Σ_k (N − |k|) e^{ikΔ}, whose integral is a sum of sines.
    """
    k = np.arange(1, length)
    sines = np.sin(np.multiply.outer(reach, k)) * ((length - k) / (np.pi * k))
    within = reach / np.pi + 2 / length * sines.sum(axis=-1)
    return np.clip(1.0 - within, 0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class TruncatedWave(
    OneRotation,
    Analysis,
    name="truncated-wave",
    source="Hua et al. (FoPE), arXiv 2412.17739, §3.3, Eq. 9–10 and C.2",
    says=(
        "A wave whose period exceeds the trained length is mostly noise at other frequencies;"
        " fast waves keep their own."
    ),
    needs="nothing",
):
    """The whole cycles of each pair in the trained length, and its power at other frequencies."""

    embedding: Preset = "rope"
    head_dim: HeadDim = 64
    base: Base = 10_000.0
    length: Annotated[int, Interval(ge=2, le=65_536), Doc("The trained length in tokens.")] = 512

    def compute(self, subject: None, progress: Progress) -> Arrays:
        """Compute for the pairs that rotate, from the fastest: `frequencies` in radians per token;
        `cycles`, α of Eq. 10; `remainder`, N − αN_m in tokens; and `elsewhere`, the share of the
        wave's power that is further from its own frequency than half of it. All are (pairs,).

        `spectra` (shown, frequencies) and `noise` (shown, frequencies) are amplitudes as shares of
        N, exact and by the second term of Eq. 10, of the pairs `shown`: the fastest, the slowest
        that completes a cycle, and the slowest; at the multiples GRID of their own frequencies.

        Raises DataError for a frequency above π, which tokens can't tell from a lower one.
        """
        every = self.rotation().frequencies
        frequencies = every[every > 0]
        if frequencies.max() > np.pi:
            raise DataError(f"found the frequency {frequencies.max():g}, needs at most π")
        cycles, remainder = whole_cycles(frequencies, self.length)
        elsewhere = np.concatenate(
            [share_beyond(one[None] / 2, self.length) for one in frequencies]
        )
        trained = int((cycles > 0).sum())
        shown = sorted({0, max(trained - 1, 0), len(frequencies) - 1})
        delta = [frequencies[pair] * (GRID - 1) for pair in shown]
        return {
            "frequencies": frequencies,
            "cycles": cycles,
            "remainder": remainder,
            "elsewhere": elsewhere,
            "shown": np.array(shown),
            "spectra": np.stack([amplitude(d, self.length) for d in delta]) / self.length,
            "noise": np.stack(
                [
                    np.abs(printed_noise(d, float(remainder[pair])))
                    for d, pair in zip(delta, shown, strict=True)
                ]
            )
            / self.length,
        }

    @property
    def number_words(self) -> Mapping[str, str]:
        others, without = "power at other frequencies", "pairs without a whole cycle"
        return {
            "cycles_fastest": "whole cycles of the fastest pair, count",
            "elsewhere_fastest": "power of the fastest pair at other frequencies, share",
            "elsewhere_trained": f"{others}, pairs with a whole cycle, mean share",
            "elsewhere_undertrained": f"{others}, {without}, mean share",
            "least_elsewhere_undertrained": f"{others}, {without}, least share",
            "undertrained": f"{without}, count",
        }

    def numbers(self, arrays: Arrays) -> dict[str, Any]:
        elsewhere = arrays["elsewhere"]
        slow = undertrained(arrays["frequencies"], self.length)
        numbers = {
            "cycles_fastest": arrays["cycles"][0],
            "elsewhere_fastest": elsewhere[0],
            "undertrained": slow.sum(),
        }
        if not slow.all():
            numbers["elsewhere_trained"] = elsewhere[~slow].mean()
        if slow.any():
            numbers["elsewhere_undertrained"] = elsewhere[slow].mean()
            numbers["least_elsewhere_undertrained"] = elsewhere[slow].min()
        return numbers

    def draw(self, arrays: Arrays) -> Figure:
        whole = 1 - arrays["remainder"] / self.length
        titles = ["Shares by pair", "Amplitude of three pairs, share of the length"]
        with panels(titles, columns=2, width=390, height=240) as (figure, (by_pair, spectra)):
            curve(by_pair, whole, 0, "length in whole cycles")
            curve(by_pair, arrays["elsewhere"], 1, "power at other frequencies")
            by_pair.set(xlabel=PAIRS, ylim=(0, 1.02))
            by_pair.legend(frameon=False, fontsize=9)
            for slot, pair in enumerate(arrays["shown"]):
                cycles = int(arrays["cycles"][pair])
                curve(spectra, arrays["spectra"][slot], slot, f"pair {pair}, α = {cycles}", x=GRID)
                curve(
                    spectra,
                    arrays["noise"][slot],
                    slot + 3,
                    f"pair {pair}, noise by Eq. 10",
                    x=GRID,
                )
            spectra.set(xlabel="frequency, share of the pair's own", ylim=(0, 1.02))
            legend(figure, spectra)
        return figure
