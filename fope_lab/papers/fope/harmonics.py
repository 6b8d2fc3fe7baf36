"""The effect of a linear layer and an activation function on the spectrum of two waves.

Hua et al. (FoPE), arXiv 2412.17739, §3.2: Eq. 7, and Lemma 3.1 with its proof in C.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from fope_lab.analysis.base import Analysis, Arrays, NumberWords, Progress, Subject
from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.problems import Problem
from fope_lab.data.problems import DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Wave = NDArray[np.float64]


ACTIVATIONS: Mapping[str, Callable[[Wave], Wave]] = {
    "linear": np.array,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "square": np.square,
    "tanh": np.tanh,
}
Activation = Literal["linear", "relu", "silu", "square", "tanh"]
"""The name of an activation; `linear` is the identity, `square` the paper's example in C.1."""


def mixing(first_leak: float, second_leak: float) -> NDArray[np.float64]:
    """Return the linear layer (2, 2) that mixes `leak` of the other dimension into each: 1 − leak
    of its own wave, and leak of the other's (σ in Eq. 6)."""
    return np.array([[1 - first_leak, first_leak], [second_leak, 1 - second_leak]])


def amplitudes(waves: Wave) -> NDArray[np.float64]:
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


def share(spectrum: NDArray[np.float64], cycles: NDArray[np.int64]) -> float:
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

    length: Annotated[int, Interval(ge=64, le=2**20), Doc("The number of samples of a wave.")] = (
        1024
    )
    first_cycles: Annotated[
        int, Interval(ge=1), Doc("The cycles of the first wave in all samples.")
    ] = 97
    second_cycles: Annotated[
        int, Interval(ge=1), Doc("The cycles of the second wave in all samples.")
    ] = 40
    leak: Annotated[
        float,
        Interval(ge=0, le=1),
        Doc("The share of the other wave that the linear layer adds to each."),
    ] = 0.3
    activation: Annotated[Activation, Doc("The activation function.")] = "silu"
    order: Annotated[
        int,
        Interval(ge=1, le=16),
        Doc("The highest j + k of the frequencies jω₁ ± kω₂ that are marked."),
    ] = 4

    def __post_init__(self) -> None:
        if self.length % 2:
            raise DataError([Problem(("length",), f"found {self.length}, needs an even number")])
        if self.first_cycles == self.second_cycles:
            message = f"found {self.second_cycles}, which is first_cycles: needs another frequency"
            raise DataError(Problem(("second_cycles",), message))
        for name in ("first_cycles", "second_cycles"):
            cycles = getattr(self, name)
            if cycles >= self.length / 2:
                message = f"found {cycles}, needs less than half of length {self.length}"
                raise DataError(Problem((name,), message))

    def compute(self, subject: Subject | None, progress: Progress) -> Arrays:
        """Compute the amplitudes (length/2 + 1,) of the first of two dimensions, by cycles in the
        length: `before` the layer, after the `linear` layer, and after the `activation`."""
        cycles = np.array([[self.first_cycles], [self.second_cycles]])
        waves = np.cos(2 * np.pi * cycles * np.arange(self.length) / self.length)
        mixed = mixing(self.leak, self.leak) @ waves
        stages = {
            "before": waves,
            "linear": mixed,
            "activation": ACTIVATIONS[self.activation](mixed),
        }
        return {name: amplitudes(stage[0]) for name, stage in stages.items()}

    @property
    def number_names(self) -> tuple[str, ...]:
        """The names of all numbers that `numbers` can return."""
        shares = ("share_outside_own", "share_outside_both")
        where = ("before", "linear", "activation")
        return (*(f"{share}_{at}" for at in where for share in shares), "share_at_combinations")

    number_words = NumberWords(
        {
            "share_outside_own_{where}": (
                "energy outside the dimension's own frequency, {where}, share"
            ),
            "share_outside_both_{where}": "energy outside both frequencies, {where}, share",
            "share_at_combinations": (
                "energy at sums and differences of multiples, after the activation, share"
            ),
        },
        {
            "before": "before the linear layer",
            "linear": "after the linear layer",
            "activation": "after the activation",
        },
    )

    def numbers(self, arrays: Arrays) -> dict[str, float]:
        """Return the shares of energy outside the dimension's own frequency and outside both, and
        the share at the combinations up to `order` after the activation."""
        own = np.array([self.first_cycles])
        both = np.array([self.first_cycles, self.second_cycles])
        every = combinations(self.first_cycles, self.second_cycles, self.length, self.order)
        metrics = {}
        for name in ("before", "linear", "activation"):
            metrics[f"share_outside_own_{name}"] = 1 - share(arrays[name], own)
            metrics[f"share_outside_both_{name}"] = 1 - share(arrays[name], both)
        metrics["share_at_combinations"] = share(arrays["activation"], every)
        return metrics

    def draw(self, arrays: Arrays) -> Figure:
        """Draw the three spectra as lines, with the combinations marked on the last axis."""
        from fope_lab.drawing.palette import COLOURS
        from fope_lab.drawing.panels import panels

        titles = ("One wave per dimension", "After a linear layer", f"After {self.activation}")
        omega = 2 * np.pi * np.arange(self.length // 2 + 1) / self.length
        with panels(titles) as (figure, axes):
            for plot, name in zip(axes, ("before", "linear", "activation"), strict=True):
                heights = arrays[name]
                seen = heights > heights.max() / 1000
                plot.vlines(omega[seen], 0, heights[seen], color=COLOURS[0][0], linewidth=1.6)
                plot.set(xlim=(0, np.pi), ylim=(0, None))
                plot.set(xlabel="frequency, radians per token", ylabel="amplitude")
            every = combinations(self.first_cycles, self.second_cycles, self.length, self.order)
            axes[2].plot(
                omega[every],
                np.zeros(len(every)),
                linestyle="none",
                marker="^",
                markersize=5,
                color=COLOURS[1][0],
                clip_on=False,
                label=f"jω₁ ± kω₂, j + k ≤ {self.order}",
            )
            axes[2].legend(frameon=False, fontsize=9, loc="upper right")
        return figure
