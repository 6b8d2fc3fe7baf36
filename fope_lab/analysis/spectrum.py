"""The frequencies of a model's embedding, and the spectrum of its scores over distance.

Hua et al. (FoPE), arXiv 2412.17739, §2.2 and §4: RoPE's scores are a sum of waves, one per pair;
FoPE sets the slow frequencies to 0 and gives each pair a series.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fope_lab.analysis.base import Analysis, Arrays, Floats, Progress, Subject
from fope_lab.analysis.reading import embedding_of, frequencies_of
from fope_lab.analysis.rotation import turns, undertrained
from fope_lab.data.problems import DataError
from fope_lab.drawing.panels import cells, panels
from fope_lab.drawing.svg import COLOURS, DASHED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


REACH = 16
"""The number of distances, as a multiple of the trained length."""


def power_spectrum(scores: Floats) -> Floats:
    """Return the shares of power (…, length/2 + 1) of scores (…, length) at 0, 1, … cycles in the
    length.

    A Hann window keeps the power of a wave with a non-integer number of cycles within two bins.
    """
    length = scores.shape[-1]
    window = np.sin(np.pi * np.arange(length) / length) ** 2
    power = np.abs(np.fft.rfft(scores * window)) ** 2
    power[..., 1 : (length + 1) // 2] *= 2  # rfft omits the equal power at −ω (none for 0 and π)
    return np.asarray(power / power.sum(axis=-1, keepdims=True))


def angular(length: int) -> Floats:
    """Return the frequencies of a power spectrum in radians per token: (length/2 + 1,), 0 to π."""
    return np.arange(length // 2 + 1) * 2 * np.pi / length


@dataclass(frozen=True, kw_only=True)
class Spectrum(
    Analysis,
    name="spectrum",
    source="Hua et al. (FoPE), arXiv 2412.17739, §2.2 and §4",
    says=(
        "RoPE's scores contain waves that complete no cycle in the trained length; FoPE replaces"
        " them by the frequency 0, and every pair has several frequencies."
    ),
    needs="model",
):
    """The frequencies of a model, and the spectrum of the scores of all-ones queries and keys."""

    number_words: ClassVar[Mapping[str, str]] = {
        "rotating_pairs": "pairs that rotate, count",
        "undertrained_pairs": "pairs that complete no turn in the trained length, count",
        "still_pairs": "pairs that do not rotate, count",
        "power_near_zero": "power of the scores near frequency 0, share",
        "power_below_floor": "power of the scores between there and the floor 2π/N, share",
        "energy_off_own_frequency": (
            "energy of the coefficients off a pair's own frequency, share"
        ),
    }

    def compute(self, subject: Subject, progress: Progress) -> Arrays:
        """Compute the pairs' `frequencies` (head_dim/2,), `train_length`, and `omega` (n,) and
        `power` (n,), the mean spectrum over all layers and heads. For a Fourier embedding, also
        compute `series` (D,), the frequencies of its coefficients, and `usage` (D, pairs), the root
        mean square of the coefficients over layers, heads, cosines and sines.

        Raises DataError if the embedding rotates nothing.
        """
        from fope_lab.model.decoder import position_embeddings

        model = subject.model
        length = REACH * model.train_length
        first = embedding_of(model, 0)
        if first.inv_freq is None:
            raise DataError(f"{first.definition.name} rotates nothing, so it has no spectrum")
        frequencies = frequencies_of(model)
        powers, squares = [], []
        embeddings = position_embeddings(model)
        for number, embedding in enumerate(embeddings, start=1):
            scores = turns(embedding, length).real.mean(axis=-2)
            powers.append(power_spectrum(scores).mean(axis=0))
            squares += [
                tensor.detach().double().square().mean(dim=0).cpu().numpy()
                for name in ("cos_coef", "sin_coef")
                if (tensor := getattr(embedding, name, None)) is not None
            ]
            progress(number, len(embeddings))
        arrays = {
            "frequencies": frequencies,
            "train_length": np.array(model.train_length),
            "omega": angular(length),
            "power": np.mean(powers, axis=0),
        }
        if squares:
            arrays["series"] = first.series_freq.double().cpu().numpy()  # type: ignore[operator]
            arrays["usage"] = np.sqrt(np.mean(squares, axis=0))
        return arrays

    def numbers(self, arrays: Arrays) -> dict[str, Any]:
        """The energy is that of a Fourier embedding alone."""
        frequencies, omega, power = (arrays[name] for name in ("frequencies", "omega", "power"))
        train_length = int(arrays["train_length"])
        floor = 2 * np.pi / train_length
        still = omega < 2.5 * omega[1]  # the window spreads 0 over the next two bins
        metrics = {
            "rotating_pairs": (frequencies > 0).sum(),
            "undertrained_pairs": undertrained(frequencies, train_length).sum(),
            "still_pairs": (frequencies == 0).sum(),
            "power_near_zero": power[still].sum(),
            "power_below_floor": power[~still & (omega < floor)].sum(),
        }
        if "usage" in arrays:
            energy = arrays["usage"] ** 2
            own = np.isclose(arrays["series"][:, None], frequencies[: energy.shape[1]], rtol=1e-6)
            metrics["energy_off_own_frequency"] = energy[~own].sum() / energy.sum()
        return metrics

    def draw(self, arrays: Arrays) -> Figure:
        frequencies, usage = arrays["frequencies"], arrays.get("usage")
        floor = 2 * np.pi / float(arrays["train_length"])
        blue, orange = (light for light, _ in COLOURS[:2])
        titles = ["Frequencies of the pairs", "Spectrum of constant scores"]
        with panels([*titles, *["Coefficients"] * (usage is not None)]) as (figure, axes):
            pairs, spectrum, *coefficients = axes
            turning, still = np.flatnonzero(frequencies), np.flatnonzero(frequencies == 0)
            pairs.plot(turning, frequencies[turning], "o", markersize=3, color=blue)
            if len(still):
                below = np.full(len(still), frequencies[turning].min() / 2)
                pairs.plot(still, below, "x", markersize=4, color=orange, label="does not rotate")
            pairs.axhline(floor, **DASHED, label="2π/N")
            pairs.set(xlabel="pair", ylabel="radians per token", yscale="log")
            plain_ticks(pairs, "y")
            pairs.legend(frameon=False, fontsize=9)
            spectrum.plot(arrays["omega"][1:], arrays["power"][1:], color=blue, linewidth=1)
            spectrum.axvline(floor, **DASHED)
            spectrum.set(xlabel="radians per token", ylabel="share of power", ylim=(1e-8, 1))
            spectrum.set(xscale="log", yscale="log")
            plain_ticks(spectrum, "xy")
            for plot in coefficients:
                cells(plot, arrays["usage"], "pair", "frequency of the series")
        return figure


def plain_ticks(axes: Axes, which: str) -> None:
    """Label powers of ten on the logarithmic axes `which` ("x", "y" or "xy") in plain digits."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    for axis in (getattr(axes, f"{name}axis") for name in which):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
