"""Whether scores decay with distance when positions are random.

Barbero et al. (Round and Round), arXiv 2410.06205: App. B.2 with Fig. 8, on the positions of Ruoss
et al., arXiv 2305.16843: N numbers below an upper bound L, drawn without replacement and sorted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray

from fope_lab.analysis.base import Analysis, Arrays, NumberWords, Progress, Subject
from fope_lab.analysis.rotation import as_complex
from fope_lab.config.annotations import Doc, Interval
from fope_lab.embeddings.frequencies import rope_ladder

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def drawn_positions(length: int, bound: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Draw `length` distinct positions of 0 … bound − 1 and sort them: (length,)."""
    return np.sort(generator.choice(bound, length, replace=False))


def scores_at(
    frequencies: NDArray[np.float64],
    queries: NDArray[np.float64],
    keys: NDArray[np.float64],
    positions: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return RoPE's scores (pairs, length) of queries and keys (pairs, head_dim), divided by
    head_dim.

    The query is at the last of the positions (length,), and a key at each of them; the first score
    is that of the same position, the next that of the token before, and so on. A score is the real
    part of Σ q·k̄·e^{iω(n − m)} over the pairs of dimensions as complex numbers (the paper's Eq. 4).
    """
    products = as_complex(queries) * as_complex(keys).conj()
    angles = frequencies[:, None] * (positions[-1] - positions[::-1])
    total = products.real @ np.cos(angles) - products.imag @ np.sin(angles)
    return np.asarray(total / queries.shape[-1])


@dataclass(frozen=True, kw_only=True)
class RandomDecay(
    Analysis,
    name="random-decay",
    source="Barbero et al. (Round and Round), arXiv 2410.06205, Fig. 8",
    says=(
        "Scores of constant queries and keys decay faster with a higher bound on the random"
        " positions; for Gaussian ones, the bound changes nothing."
    ),
    needs="nothing",
):
    """RoPE's scores by distance in tokens, at consecutive and at random positions.

    Random positions are drawn from 2, 4, … `reach` times as many; scores are means over draws.
    """

    head_dim: Annotated[int, Interval(ge=2), Doc("The dimensions of a head.")] = 256
    base: Annotated[float, Interval(gt=1), Doc("The base of RoPE's frequencies (θ).")] = 10_000.0
    length: Annotated[int, Interval(ge=16), Doc("The number of distances, in tokens.")] = 2048
    reach: Annotated[
        int,
        Interval(ge=2),
        Doc("The highest multiple of positions that random ones are drawn from."),
    ] = 16
    draws: Annotated[int, Interval(ge=1), Doc("The number of draws of random positions.")] = 20
    pairs: Annotated[
        int, Interval(ge=2), Doc("The number of random pairs of a query and a key.")
    ] = 200
    seed: Annotated[int, Interval(ge=0), Doc("The seed of all random draws.")] = 0

    def __post_init__(self) -> None:
        if self.head_dim % 2:
            raise ValueError(f"head_dim: found {self.head_dim}, needs an even number")
        if self.reach & (self.reach - 1):
            raise ValueError(f"reach: found {self.reach}, needs a power of two")

    def compute(self, subject: Subject | None, progress: Progress) -> Arrays:
        """Compute `bounds` (n,), and for each bound the scores `constant` (n, length), a mean over
        draws; `gaussian` (n, length), one pair at one draw; and `deviation` (n, length), the root
        mean square of all Gaussian pairs and draws."""
        bounds = self.length * 2 ** np.arange(self.reach.bit_length())
        ladder = rope_ladder(self.head_dim, base=self.base, train_length=self.length)
        frequencies = np.asarray(ladder.frequencies)
        generator = np.random.default_rng(self.seed)
        ones = np.ones((1, self.head_dim))
        queries, keys = generator.standard_normal((2, self.pairs, self.head_dim))
        constant, gaussian, square = np.zeros((3, len(bounds), self.length))
        for i, bound in enumerate(bounds):
            for draw in range(self.draws):
                positions = drawn_positions(self.length, int(bound), generator)
                constant[i] += scores_at(frequencies, ones, ones, positions)[0] / self.draws
                drawn = scores_at(frequencies, queries, keys, positions)
                square[i] += (drawn**2).mean(axis=0) / self.draws
                if draw == 0:
                    gaussian[i] = drawn[0]
                progress(i * self.draws + draw + 1, len(bounds) * self.draws)
        return {
            "bounds": bounds,
            "constant": constant,
            "gaussian": gaussian,
            "deviation": np.sqrt(square),
        }

    @property
    def number_names(self) -> tuple[str, ...]:
        """The names of all numbers that `numbers` can return."""
        parts = ("constant_halved_at", "constant_far")
        deviations = ("gaussian_deviation_near", "gaussian_deviation_far")
        bounds = [2**i for i in range(self.reach.bit_length())]
        return tuple(f"x{bound}_{part}" for bound in bounds for part in (*parts, *deviations))

    number_words = NumberWords(
        {
            "x{bound}_constant_halved_at": (
                "distance at which the constant score has"
                " halved, positions from {bound} times the length, tokens"
            ),
            "x{bound}_constant_far": (
                "mean constant score over the farthest"
                " eighth, positions from {bound} times the length"
            ),
            "x{bound}_gaussian_deviation_{where}": (
                "deviation of Gaussian scores over the {where}"
                " eighth, positions from {bound} times the length"
            ),
        },
        {
            "near": "nearest",
            "far": "farthest",
        },
    )

    def numbers(self, arrays: Arrays) -> dict[str, float]:
        """Return, for each bound as a multiple of the length, the distance at which the constant
        pair's score first drops below half, its mean over the last eighth of the distances, and the
        Gaussian pairs' standard deviation over the first and the last eighth."""
        part = self.length // 8
        metrics: dict[str, float] = {}
        for i, bound in enumerate(arrays["bounds"] // self.length):
            below = np.flatnonzero(arrays["constant"][i] < 0.5)
            metrics |= {
                f"x{bound}_constant_halved_at": below[0] if len(below) else np.nan,
                f"x{bound}_constant_far": arrays["constant"][i, -part:].mean(),
                f"x{bound}_gaussian_deviation_near": arrays["deviation"][i, :part].mean(),
                f"x{bound}_gaussian_deviation_far": arrays["deviation"][i, -part:].mean(),
            }
        return {name: float(value) for name, value in metrics.items() if np.isfinite(value)}

    def draw(self, arrays: Arrays) -> Figure:
        """Draw a curve for each bound: the scores of the constant pair and of one Gaussian pair."""
        from fope_lab.drawing.panels import curve, legend, panels

        titles = ("Constant queries and keys", "One Gaussian query and key")
        with panels(titles, width=360, height=240) as (figure, plots):
            for i, bound in enumerate(arrays["bounds"].tolist()):
                label = f"drawn from {bound}" if i else f"RoPE, {bound} consecutive"
                for axes, name in zip(plots, ("constant", "gaussian"), strict=True):
                    curve(axes, arrays[name][i], i, label)
            for axes in plots:
                axes.set(xlabel="distance, tokens", ylabel="score / head_dim")
            legend(figure, plots[0])
        return figure
