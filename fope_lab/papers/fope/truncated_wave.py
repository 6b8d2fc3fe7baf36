"""The spectrum of a wave that ends with the trained length: what is left of its own frequency.

Hua et al. (FoPE), arXiv 2412.17739, §3.3, Eq. 9–10 and C.2. A wave of frequency ω_m that is cut
after N tokens has α = ⌊N/N_m⌋ whole cycles of N_m = 2π/ω_m tokens, and the rest of its length adds
other frequencies. Where the period is longer than N, there is no whole cycle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fope_lab.analysis.base import Analysis, Arrays, NumberWords, Progress, Subject
from fope_lab.analysis.pairs import PAIRS
from fope_lab.analysis.rotation import OneRotation, undertrained
from fope_lab.config.annotations import Doc, Interval
from fope_lab.data.problems import DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GRID = np.linspace(0.0, 3.0, 601)
"""The frequencies of a drawn spectrum, as multiples of the wave's own."""


def whole_cycles(
    frequencies: NDArray[np.float64], length: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return α, the number of whole cycles in `length` tokens, and N − αN_m, the tokens after them,
    for frequencies in radians per token that are not 0. Both are shaped like `frequencies`."""
    periods = 2 * np.pi / frequencies
    # A wave of exactly one cycle would have none by a rounding error of the division.
    cycles = np.floor(length / periods * (1 + 1e-12)).astype(np.int64)
    return cycles, np.maximum(length - cycles * periods, 0.0)


def printed_noise(delta: ArrayLike, remainder: float) -> NDArray[np.float64]:
    """Return the second term of Eq. 10, sin[(N − αN_m)(ω − ω_m)]/(ω − ω_m), at differences of
    frequency in radians per token; at 0 it is N − αN_m."""
    return np.asarray(remainder * np.sinc(np.asarray(delta) * remainder / np.pi))


def amplitude(delta: ArrayLike, length: int) -> NDArray[np.float64]:
    """Return |Σ e^{iΔn}| over n = 0 … length − 1: the exact spectrum of a wave at a difference Δ in
    radians per token from its own frequency. At 0 it is `length`."""
    half = np.asarray(delta, np.float64) / 2
    near = np.abs(np.sin(half)) < 1e-9
    safe = np.where(near, 1.0, np.sin(half))
    return np.asarray(np.where(near, length, np.abs(np.sin(length * half) / safe)))


def share_beyond(reach: NDArray[np.float64], length: int) -> NDArray[np.float64]:
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

    embedding: Annotated[str, Doc("The preset of the embedding.")] = "rope"
    head_dim: Annotated[int, Interval(ge=2), Doc("The dimensions of a head.")] = 64
    base: Annotated[float, Interval(gt=1), Doc("The base of RoPE's frequencies (θ).")] = 10_000.0
    length: Annotated[int, Interval(ge=2, le=65_536), Doc("The trained length in tokens.")] = 512

    def compute(self, subject: Subject | None, progress: Progress) -> Arrays:
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
    def number_names(self) -> tuple[str, ...]:
        """The names of all numbers that `numbers` can return."""
        parts = ("cycles_fastest", "elsewhere_fastest", "elsewhere_trained")
        return (*parts, "elsewhere_undertrained", "least_elsewhere_undertrained", "undertrained")

    number_words = NumberWords(
        {
            "cycles_fastest": "whole cycles of the fastest pair, count",
            "elsewhere_fastest": "power of the fastest pair at other frequencies, share",
            "elsewhere_trained": (
                "power at other frequencies, pairs with a whole cycle, mean share"
            ),
            "elsewhere_undertrained": (
                "power at other frequencies, pairs without a whole cycle, mean share"
            ),
            "least_elsewhere_undertrained": (
                "power at other frequencies, pairs without a whole cycle, least share"
            ),
            "undertrained": "pairs without a whole cycle, count",
        }
    )

    def numbers(self, arrays: Arrays) -> dict[str, float]:
        """Return α of the fastest pair; the share of the power at other frequencies of the fastest,
        and as means of the pairs with and without a whole cycle; and the number of the latter."""
        elsewhere = arrays["elsewhere"]
        slow = undertrained(arrays["frequencies"], self.length)
        numbers = {
            "cycles_fastest": float(arrays["cycles"][0]),
            "elsewhere_fastest": float(elsewhere[0]),
            "undertrained": float(slow.sum()),
        }
        if not slow.all():
            numbers["elsewhere_trained"] = float(elsewhere[~slow].mean())
        if slow.any():
            numbers["elsewhere_undertrained"] = float(elsewhere[slow].mean())
            numbers["least_elsewhere_undertrained"] = float(elsewhere[slow].min())
        return numbers

    def draw(self, arrays: Arrays) -> Figure:
        """Draw by pair the share of the length in whole cycles and that of the power at other
        frequencies; and the spectra of three pairs around their own frequencies."""
        from fope_lab.drawing.panels import curve, legend, panels

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
