"""Whether scores fall with distance: for constant queries and keys, and for random ones.

Barbero et al. (Round and Round), arXiv 2410.06205: §3 with Fig. 2 and Prop. 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge, Gt
from numpy.typing import NDArray

from fope_lab.analysis.base import Analysis, Arrays, Progress, Subject
from fope_lab.analysis.rotation import OneRotation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVES = 3
"""Of the random pairs, how many are drawn one by one."""


def scores(
    queries: NDArray[np.float64], keys: NDArray[np.float64], turned: NDArray[np.complex128]
) -> NDArray[np.float64]:
    """Scores (pairs, length) of a query and a key (pairs, head_dim) by distance, over head_dim, so
    that an equal pair of unit variance has 1 at distance 0; for the `turns` (head_dim/2, length) of
    a head (rotation.py)."""
    half = len(turned)
    q, k = (x[:, :half] + 1j * x[:, half:] for x in (queries, keys))
    return np.asarray(((q.conj() * k) @ turned).real / (2 * half))


@dataclass(frozen=True, kw_only=True)
class Decay(
    OneRotation,
    Analysis,
    name="decay",
    source="Barbero et al. (Round and Round), arXiv 2410.06205, Fig. 2",
    says="Scores of constant queries and keys fall with distance, those of Gaussian ones do not.",
    needs="nothing",
):
    """Scores by distance of all-ones and of Gaussian queries and keys, under a rotation."""

    embedding: str = "rope"
    head_dim: Annotated[int, Ge(2)] = 256
    base: Annotated[float, Gt(1)] = 10_000.0
    length: Annotated[int, Ge(16)] = 2048
    pairs: Annotated[int, Ge(CURVES)] = 1000
    seed: Annotated[int, Ge(0)] = 0

    def compute(self, subject: Subject | None, progress: Progress) -> Arrays:
        """`constant` (length,), `gaussian` (pairs, length): scores by distance."""
        turned = self.turned()
        ones = np.ones((1, self.head_dim))
        drawn = np.random.default_rng(self.seed).standard_normal((2, self.pairs, self.head_dim))
        return {
            "constant": scores(ones, ones, turned)[0],
            "gaussian": scores(drawn[0], drawn[1], turned),
        }

    def numbers(self, arrays: Arrays) -> dict[str, float]:
        """The mean score over the first and the last eighth of the distances, of both kinds."""
        part = self.length // 8
        return {
            f"{name}_{where}": float(values[..., places].mean())
            for name, values in arrays.items()
            for where, places in (("near", slice(part)), ("far", slice(-part, None)))
        }

    def draw(self, arrays: Arrays) -> Figure:
        """The constant pair's curve; some random pairs' and the mean of all."""
        from fope_lab.drawing.panels import curve, legend, panels

        distances = np.arange(self.length).tolist()
        titles = ("Constant queries and keys", "Gaussian queries and keys")
        with panels(titles) as (figure, (constant, gaussian)):
            curve(constant, distances, arrays["constant"].tolist(), 0)
            for i in range(CURVES):
                curve(gaussian, distances, arrays["gaussian"][i].tolist(), 3, "one pair" * (i == 0))
            mean = arrays["gaussian"].mean(axis=0).tolist()
            curve(gaussian, distances, mean, 1, f"mean of {self.pairs} pairs")
            for axes in (constant, gaussian):
                axes.set_xlabel("relative distance, tokens")
                axes.set_ylabel("score / head_dim")
            legend(figure, gaussian)
        return figure
