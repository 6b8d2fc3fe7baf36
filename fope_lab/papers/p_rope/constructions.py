"""What attention with a rotation can and can't do, and whether its scores decay with distance.

Barbero et al. (Round and Round), arXiv 2410.06205. Prop. 3.1, Prop. 5.2 with Thm. 5.3, Thm. 6.1:
numerical checks of constructions, whose scores omit the factor 1/√head_dim, as in the paper. App.
B.2 with Fig. 8: decay at the random positions of Ruoss et al., arXiv 2305.16843, N numbers below an
upper bound L, drawn without replacement and sorted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fope_lab.analysis.base import Analysis, Arrays, Floats, Progress, Seed
from fope_lab.analysis.rotation import (
    Base,
    Distances,
    HeadDim,
    Preset,
    Rotation,
    as_complex,
    rotation,
)
from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.problems import Problem
from fope_lab.data.problems import DataError
from fope_lab.drawing.panels import curve, legend, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PEAKS = (0, 64, 256, 512)
"""The distances of the drawn constructions; those beyond the length are omitted."""
TARGETS = 48
"""The number of target distances, evenly over the length, for the peaks of random queries."""
NORMS = 2.0 ** np.arange(-1, 12.25, 0.25)
"""The squared norms of the vector ψ that makes up the queries and keys of positional heads."""
QUERIES = 8
"""The number of random queries."""
CONTEXT, MISS = 2**20, 0.01
"""The context in tokens at which a semantic head is tried, and the share of attention that may miss
the sought token."""
BASES = (10_000.0, 500_000.0)
"""The base of RoPE, and the higher base of Code Llama and Llama 3 (§6)."""
ROTATIONS = {
    "unturned": "a pair that does not rotate",
    "base_10000": "slowest pair, base 10,000",
    "base_500000": "slowest pair, base 500,000",
}
"""The labels of the semantic head's frequencies."""


def peaked_scores(rotary: Rotation, query: Floats, peaks: NDArray[np.int64], length: int) -> Floats:
    """Return the scores (peaks, length) by distance of a query (head_dim,), divided by its squared
    norm, for keys that are the query rotated by each of the distances `peaks` (Prop. 3.1)."""
    queries = rotary.turned(query, np.arange(length))
    keys = rotary.turned(query, peaks)
    return keys @ queries.T / (query @ query)


def positional_attention(rotary: Rotation, offset: int, norms: Floats, length: int) -> Floats:
    """Return a token's attention to the token `offset` back if every query is the same vector ψ and
    every key is ψ rotated by `offset` (Thm. 5.3): (norms,), for the squared norms of ψ.

    The attending token is the last of `length` tokens, the worst case: earlier tokens have fewer
    others to attend to. ψ has the same entries in all pairs.
    """
    ones = np.ones(rotary.shape.head_dim)
    unit = peaked_scores(rotary, ones, np.array([offset]), length)[0]
    return np.array([1 / np.exp(norm * (unit - unit[offset])).sum() for norm in norms])


def unpositioned_attention(norms: Floats) -> Floats:
    """Return the highest attention of the last of three tokens (beginning, x, x) to itself or to
    the token before, without positions (Prop. 5.2): (norms,).

    The token scores −‖ψ‖² with the beginning and ‖ψ‖² with each x.
    """
    return 1 / (2 + np.exp(-2 * norms))


def semantic_norm(context: int, miss: float) -> float:
    """Return the squared norm at which a head without positions gives all but `miss` of its
    attention to a single token in a context of `context` tokens.

    The token scores the squared norm, and each of the others its negative.
    """
    return 0.5 * float(np.log((context - 1) * (1 - miss) / miss))


def semantic_attention(frequency: float, norm: float, context: int) -> Floats:
    """Return the attention of a head with a single frequency to its target token at the worst
    position: (context,), for contexts of 1, 2 … tokens (Thm. 6.1).

    The query is ψ at the last token; the key is ψ for the target and −ψ for all other tokens. With
    ‖ψ‖² = `norm`, the scores at distance n are ±norm·cos(frequency·n).
    """
    right = norm * np.cos(frequency * np.arange(context))
    worst = np.minimum.accumulate(right)
    others = np.cumsum(np.exp(-right)) - np.exp(-worst)
    return np.asarray(1 / (1 + others * np.exp(-worst)))


@dataclass(frozen=True, kw_only=True)
class Constructions(
    Analysis,
    name="constructions",
    source="Barbero et al. (Round and Round), arXiv 2410.06205, Prop. 3.1, 5.2, Thm. 5.3, 6.1",
    says=(
        "With a rotation, scores can peak at any distance, and a head can attend arbitrarily"
        " sharply to the current or the previous token, which is impossible without positions; but"
        " a head that looks for a token through a single frequency fails in a long enough context."
    ),
    needs="nothing",
):
    """Scores that peak at chosen distances, positional heads by norm, semantic heads by context."""

    embedding: Preset = "rope"
    head_dim: Annotated[int, Interval(ge=4), Doc("The dimensions of a head.")] = 128
    length: Distances = 1024
    seed: Seed = 0

    def __post_init__(self) -> None:
        if not self._rotation(self.embedding, BASES[0]).definition.shift_invariant:
            message = (
                f"found {self.embedding!r}, but the constructions need a rotation whose scores"
                " depend on the distance alone"
            )
            raise DataError(Problem(("embedding",), message))

    def _rotation(self, preset: str, base: float) -> Rotation:
        return rotation(preset, head_dim=self.head_dim, train_length=self.length, base=base)

    def compute(self, subject: None, progress: Progress) -> Arrays:
        """Compute the numbers of each construction.

        Prop. 3.1: `peaks` (n,), `peaked` (n, length), scores by distance; `hits` (queries,
        distances), whether the scores of random queries peak at the target distances.

        Thm. 5.3: `norms` (n,), squared; `own` and `previous` (n,), the attention to the current and
        the previous token by norm. Prop. 5.2: `unpositioned` (n,), the maximum without positions.

        Thm. 6.1: `frequencies` (3,), 0 and the slowest of two bases; `semantic` (3, context), the
        attention by length of the context.
        """
        rotary = self._rotation(self.embedding, BASES[0])
        drawn = np.random.default_rng(self.seed).standard_normal((QUERIES, self.head_dim))
        peaks = np.array([peak for peak in PEAKS if peak < self.length])
        targets = np.unique(np.linspace(0, self.length - 1, TARGETS).astype(np.int64))
        hits = np.empty((QUERIES, len(targets)), dtype=bool)
        for i, query in enumerate(drawn):
            scores = peaked_scores(rotary, query, targets, self.length)
            hits[i] = scores.argmax(axis=1) == targets
            progress(i + 1, QUERIES)
        slowest = (self._rotation("rope", base).frequencies[-1] for base in BASES)
        frequencies = [0.0, *slowest]
        norm = semantic_norm(CONTEXT, MISS / 2)
        return {
            "peaks": peaks,
            "peaked": peaked_scores(rotary, drawn[0], peaks, self.length),
            "hits": hits,
            "norms": NORMS,
            "own": positional_attention(rotary, 0, NORMS, self.length),
            "previous": positional_attention(rotary, 1, NORMS, self.length),
            "unpositioned": unpositioned_attention(NORMS),
            "frequencies": np.array(frequencies),
            "semantic": np.stack(
                [semantic_attention(omega, norm, CONTEXT) for omega in frequencies]
            ),
        }

    @property
    def number_words(self) -> Mapping[str, str]:
        least = "least squared norm at which a head attends to"
        reach = "longest context in which the semantic head works"
        return {
            "peaks_where_asked": "random queries whose scores peak at the target distance, share",
            "own_squared_norm": f"{least} the current token",
            "previous_squared_norm": f"{least} the previous token",
            "unpositioned_most": "greatest attention without positions, share",
            "unturned_reach": f"{reach}, a pair that does not rotate, tokens",
            "base_10000_reach": f"{reach}, slowest pair of base 10,000, tokens",
            "base_500000_reach": f"{reach}, slowest pair of base 500,000, tokens",
        }

    def numbers(self, arrays: Arrays) -> dict[str, Any]:
        """A head works if its token has more than 1 − miss of its attention."""
        metrics = {"peaks_where_asked": arrays["hits"].mean()}
        for kind in ("own", "previous"):
            enough = np.flatnonzero(arrays[kind] > 1 - MISS)
            if len(enough):
                metrics[f"{kind}_squared_norm"] = NORMS[enough[0]]
        metrics["unpositioned_most"] = arrays["unpositioned"].max()
        for name, attention in zip(ROTATIONS, arrays["semantic"], strict=True):
            lost = np.flatnonzero(attention <= 1 - MISS)
            metrics[f"{name}_reach"] = lost[0] if len(lost) else CONTEXT
        return metrics

    def draw(self, arrays: Arrays) -> Figure:
        titles = (
            "Prop. 3.1: a key for any distance",
            "Thm. 5.3: positional heads",
            "Thm. 6.1: a semantic head",
        )
        with panels(titles, width=310, height=270) as (figure, (peaked, by_norm, by_context)):
            for i, peak in enumerate(arrays["peaks"].tolist()):
                curve(peaked, arrays["peaked"][i], i, f"made for {peak}")
            peaked.set(xlabel="distance, tokens", ylabel="score / highest possible score")
            kinds = {
                "own": f"current token, {self.embedding}",
                "previous": f"previous token, {self.embedding}",
                "unpositioned": "either, without positions, 3 tokens",
            }
            for i, (kind, label) in enumerate(kinds.items()):
                curve(by_norm, arrays[kind], i, label, x=arrays["norms"])
            by_norm.set(
                xlabel="squared norm of queries and keys", ylabel=f"attention, {self.length} tokens"
            )
            contexts = np.unique(np.geomspace(1, CONTEXT, 400).astype(np.int64))
            for i, name in enumerate(ROTATIONS.values()):
                curve(by_context, arrays["semantic"][i, contexts - 1], i, name, x=contexts)
            by_context.set(xlabel="tokens in the context", ylabel="attention, worst position")
            peaked.legend(frameon=False, fontsize=9, loc="upper right")
            for axes, step in ((by_norm, 16), (by_context, 64)):
                axes.set(xscale="log", ylim=(-0.02, 1.02))
                low, high = axes.get_xlim()
                ticks = [step**n for n in range(21) if low <= step**n <= high]
                axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
                axes.set_xticks([], minor=True)
            by_norm.legend(frameon=False, fontsize=9, loc="lower right")
            by_context.legend(frameon=False, fontsize=9, loc="lower left")
        return figure


TIMES = (1, 2, 4, 8, 16)
"""The multiples of the number of distances that positions are drawn from."""
DRAWS, PAIRS = 20, 200
"""The numbers of draws of random positions, and of random pairs of a query and a key."""


def drawn_positions(length: int, bound: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Draw `length` distinct positions of 0 … bound − 1 and sort them: (length,)."""
    return np.sort(generator.choice(bound, length, replace=False))


def scores_at(
    frequencies: Floats, queries: Floats, keys: Floats, positions: NDArray[np.int64]
) -> Floats:
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

    Random positions are drawn from 2, 4, 8 and 16 times as many; scores are means over draws.
    """

    head_dim: HeadDim = 256
    base: Base = 10_000.0
    length: Annotated[int, Interval(ge=16), Doc("The number of distances, in tokens.")] = 2048
    seed: Seed = 0

    def __post_init__(self) -> None:
        if self.head_dim % 2:
            raise ValueError(f"head_dim: found {self.head_dim}, needs an even number")

    def compute(self, subject: None, progress: Progress) -> Arrays:
        """Compute `bounds` (n,), and for each bound the scores `constant` (n, length), a mean over
        draws; `gaussian` (n, length), one pair at one draw; and `deviation` (n, length), the root
        mean square of all Gaussian pairs and draws."""
        bounds = self.length * np.array(TIMES)
        rotary = rotation("rope", head_dim=self.head_dim, train_length=self.length, base=self.base)
        frequencies = rotary.frequencies
        generator = np.random.default_rng(self.seed)
        ones = np.ones((1, self.head_dim))
        queries, keys = generator.standard_normal((2, PAIRS, self.head_dim))
        constant, gaussian, square = np.zeros((3, len(bounds), self.length))
        for i, bound in enumerate(bounds):
            for draw in range(DRAWS):
                positions = drawn_positions(self.length, int(bound), generator)
                constant[i] += scores_at(frequencies, ones, ones, positions)[0] / DRAWS
                drawn = scores_at(frequencies, queries, keys, positions)
                square[i] += (drawn**2).mean(axis=0) / DRAWS
                if draw == 0:
                    gaussian[i] = drawn[0]
                progress(i * DRAWS + draw + 1, len(bounds) * DRAWS)
        return {
            "bounds": bounds,
            "constant": constant,
            "gaussian": gaussian,
            "deviation": np.sqrt(square),
        }

    number_words: ClassVar[Mapping[str, str]] = {
        f"x{bound}_{name}": f"{words}, positions from {bound} times the length{unit}"
        for bound in TIMES
        for name, words, unit in (
            ("constant_halved_at", "distance at which the constant score has halved", ", tokens"),
            ("constant_far", "mean constant score over the farthest eighth", ""),
            ("gaussian_deviation_near", "deviation of Gaussian scores over the nearest eighth", ""),
            ("gaussian_deviation_far", "deviation of Gaussian scores over the farthest eighth", ""),
        )
    }

    def numbers(self, arrays: Arrays) -> dict[str, Any]:
        """A constant score that never halves has no distance."""
        part = self.length // 8
        metrics: dict[str, Any] = {}
        for i, bound in enumerate(arrays["bounds"] // self.length):
            below = np.flatnonzero(arrays["constant"][i] < 0.5)
            metrics |= {
                f"x{bound}_constant_halved_at": below[0] if len(below) else np.nan,
                f"x{bound}_constant_far": arrays["constant"][i, -part:].mean(),
                f"x{bound}_gaussian_deviation_near": arrays["deviation"][i, :part].mean(),
                f"x{bound}_gaussian_deviation_far": arrays["deviation"][i, -part:].mean(),
            }
        return metrics

    def draw(self, arrays: Arrays) -> Figure:
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
