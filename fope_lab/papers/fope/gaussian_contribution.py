"""The effect of a rotation on scores by distance, for Gaussian queries and keys.

Hua et al. (FoPE), arXiv 2412.17739, A.2 with Fig. 8. Queries and keys with independent entries of
mean μ score, on average, μ² times what all-ones vectors score: the decay vanishes as μ goes to 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray

from fope_lab.analysis.base import Analysis, Arrays, NumberWords, Progress, Subject
from fope_lab.analysis.rotation import OneRotation, as_complex, undertrained
from fope_lab.config.annotations import Doc, Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEANS = (0.0, 0.1, 1.0)
"""The means of the entries of queries and keys (Fig. 8)."""


def constant_scores(turned: NDArray[np.complex128]) -> NDArray[np.float64]:
    """Return what each pair adds to the score of an all-ones query and key, divided by head_dim:
    (pairs, length), for the `turns` (pairs, length) of a head."""
    return turned.real / len(turned)


def mean_scores(
    queries: NDArray[np.float64], keys: NDArray[np.float64], turned: NDArray[np.complex128]
) -> NDArray[np.float64]:
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

    embedding: Annotated[str, Doc("The preset of the embedding.")] = "rope"
    head_dim: Annotated[int, Interval(ge=2), Doc("The dimensions of a head.")] = 128
    base: Annotated[float, Interval(gt=1), Doc("The base of RoPE's frequencies (θ).")] = 10_000.0
    length: Annotated[
        int, Interval(ge=16), Doc("The trained length in tokens, and the number of distances.")
    ] = 4096
    pairs: Annotated[
        int, Interval(ge=1), Doc("The number of random pairs of a query and a key.")
    ] = 1000
    seed: Annotated[int, Interval(ge=0), Doc("The seed of all random draws.")] = 0

    def compute(self, subject: Subject | None, progress: Progress) -> Arrays:
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
    def number_names(self) -> tuple[str, ...]:
        """The names of all numbers that `numbers` can return."""
        means = (f"mean_{mean:g}".replace(".", "_") for mean in MEANS)
        return tuple(f"decay_{name}" for name in (*means, "constant", "undertrained", "trained"))

    number_words = NumberWords(
        {
            "decay_mean_{mean}": "decay of the scores from near to far, entries of mean {mean}",
            "decay_{vectors}": "decay of the scores from near to far, {vectors}",
        },
        {
            "0": "0",
            "0_1": "0.1",
            "1": "1",
            "constant": "all-ones vectors",
            "undertrained": "undertrained pairs of all-ones vectors",
            "trained": "other pairs of all-ones vectors",
        },
    )

    def numbers(self, arrays: Arrays) -> dict[str, float]:
        """Return the decay of the scores from the first to the last eighth of the distances: for
        each mean, for all-ones vectors, and for the undertrained and other pairs of the latter."""
        part = self.length // 8
        curves = {
            **{f"mean_{mean:g}": arrays["gaussian"][i] for i, mean in enumerate(MEANS)},
            "constant": arrays["constant"],
            "undertrained": arrays["undertrained"],
            "trained": arrays["constant"] - arrays["undertrained"],
        }
        return {
            f"decay_{name.replace('.', '_')}": float(scores[:part].mean() - scores[-part:].mean())
            for name, scores in curves.items()
        }

    def draw(self, arrays: Arrays) -> Figure:
        """Draw each mean's scores with their expectation, and the all-ones scores in two parts."""
        from fope_lab.drawing.panels import curve, legend, panels

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
