"""Whether scores decay with distance, for constant and for random queries and keys.

Barbero et al. (Round and Round), arXiv 2410.06205: §3 with Fig. 2 and Prop. 3.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fope_lab.analysis.base import Analysis, Arrays, Floats, Progress, Seed
from fope_lab.analysis.rotation import Base, Distances, HeadDim, OneRotation, Preset, as_complex
from fope_lab.config.annotations import Doc, Interval
from fope_lab.drawing.panels import curve, legend, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVES = 3
"""The number of random pairs that have a curve of their own."""


def scores(queries: Floats, keys: Floats, turned: NDArray[np.complex128]) -> Floats:
    """Return the scores (pairs, length) of queries and keys (pairs, head_dim) by distance.

    `turned` (head_dim/2, length) holds the `turns` of a head (rotation.py). Scores are divided by
    head_dim: an equal query and key of unit variance score 1 at distance 0.
    """
    q, k = as_complex(queries), as_complex(keys)
    return np.asarray(((q.conj() * k) @ turned).real / queries.shape[-1])


@dataclass(frozen=True, kw_only=True)
class Decay(
    OneRotation,
    Analysis,
    name="decay",
    source="Barbero et al. (Round and Round), arXiv 2410.06205, Fig. 2",
    says="Scores of constant queries and keys decay with distance, those of Gaussian ones do not.",
    needs="nothing",
):
    """Scores by distance of all-ones and of Gaussian queries and keys under a rotation."""

    embedding: Preset = "rope"
    head_dim: HeadDim = 256
    base: Base = 10_000.0
    length: Distances = 2048
    pairs: Annotated[
        int, Interval(ge=CURVES), Doc("The number of random pairs of a query and a key.")
    ] = 1000
    seed: Seed = 0

    number_words: ClassVar[Mapping[str, str]] = {
        f"{name}_{where}": f"mean score of {kind} queries and keys, {part} of the distances,"
        " score / head_dim"
        for name, kind in (("constant", "constant"), ("gaussian", "Gaussian"))
        for where, part in (("near", "nearest eighth"), ("far", "farthest eighth"))
    }

    def compute(self, subject: None, progress: Progress) -> Arrays:
        """Compute scores by distance: `constant` (length,) and `gaussian` (pairs, length)."""
        turned = self.turned()
        ones = np.ones((1, self.head_dim))
        drawn = np.random.default_rng(self.seed).standard_normal((2, self.pairs, self.head_dim))
        return {
            "constant": scores(ones, ones, turned)[0],
            "gaussian": scores(drawn[0], drawn[1], turned),
        }

    def numbers(self, arrays: Arrays) -> dict[str, Any]:
        part = self.length // 8
        return {
            f"{name}_{where}": values[..., places].mean()
            for name, values in arrays.items()
            for where, places in (("near", slice(part)), ("far", slice(-part, None)))
        }

    def draw(self, arrays: Arrays) -> Figure:
        titles = ("Constant queries and keys", "Gaussian queries and keys")
        with panels(titles) as (figure, (constant, gaussian)):
            curve(constant, arrays["constant"], 0)
            for i in range(CURVES):
                curve(gaussian, arrays["gaussian"][i], 3, "one pair" * (i == 0))
            mean = arrays["gaussian"].mean(axis=0)
            curve(gaussian, mean, 1, f"mean of {self.pairs} pairs")
            for axes in (constant, gaussian):
                axes.set(xlabel="relative distance, tokens", ylabel="score / head_dim")
            legend(figure, gaussian)
        return figure
