"""The norms of values by pair of dimensions, beside those of keys, which are rotated.

Barbero et al. (Round and Round), arXiv 2410.06205: §4 and App. D.2 with Fig. 10 (c). The paper
shows that rotation is why queries and keys prefer some pairs: values are not rotated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fope_lab.analysis.base import Analysis, Arrays, Floats, Progress, Sequences, Subject
from fope_lab.analysis.reading import (
    PAIRS,
    ReadsPassages,
    pair_norms,
    quarter_shares,
    read,
    rotated_frequencies,
)
from fope_lab.config.annotations import Doc, Interval
from fope_lab.drawing.panels import cells, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fope_lab.model.decoder import Decoder

KINDS = ("value", "key")


def mean_value_norms(
    model: Decoder, rows: NDArray[np.int64], progress: Progress = lambda done, total: None
) -> dict[str, Floats]:
    """Return the mean 2-norms by pair of dimensions over the tokens of rows (passages, length), of
    values and of keys before rotation: `value` and `key` (layers, head_dim/2), means over heads.

    The pairs of values are those that a rotation would turn, were there one.
    """
    import torch

    config = model.config
    sums = {kind: np.zeros((config.num_layers, config.head_dim // 2)) for kind in KINDS}
    for _, at in read(model, rows, progress):
        for kind, x in (("value", at.v), ("key", at.k)):
            mean = pair_norms(x)[0].mean(dim=(0, 1), dtype=torch.float64)
            sums[kind][at.layer] += mean.cpu().numpy()
    return {kind: total / len(rows) for kind, total in sums.items()}


def unevenness(norms: Floats) -> Floats:
    """Return the standard deviation over pairs as a share of the mean, for norms (…, pairs): (…),
    and 0 where all are 0."""
    means = norms.mean(axis=-1)
    return np.asarray(norms.std(axis=-1) / np.where(means == 0, 1.0, means))


@dataclass(frozen=True, kw_only=True)
class ValueNorms(
    ReadsPassages,
    Analysis,
    name="value-norms",
    source="Barbero et al. (Round and Round), arXiv 2410.06205, Fig. 10 (c)",
    says=(
        "Values, which are not rotated, have no pattern over the pairs of dimensions, whereas keys"
        " prefer the slowest."
    ),
    needs="text",
):
    """Mean norms of values and of keys by pair of dimensions and layer."""

    sequences: Sequences = 10
    length: Annotated[int, Interval(ge=2), Doc("The tokens of a passage.")] = 256

    number_words: ClassVar[Mapping[str, str]] = {
        f"{kind}_{part}": f"norm of the {kind}{words}"
        for kind in KINDS
        for part, words in (
            ("slow_share", " in the slowest quarter of the pairs, share"),
            ("fast_share", " in the fastest quarter of the pairs, share"),
            ("unevenness", ", standard deviation over pairs, share of its mean"),
        )
    }

    def compute(self, subject: Subject, progress: Progress) -> Arrays:
        """Compute `value` and `key` (layers, head_dim/2), and the `frequencies` (head_dim/2,) of
        keys in radians per token, from fast to slow.

        Raises DataError if the model rotates nothing.
        """
        frequencies = rotated_frequencies(subject.model, self.name)
        rows = self.passages(subject)
        return {"frequencies": frequencies, **mean_value_norms(subject.model, rows, progress)}

    def numbers(self, arrays: Arrays) -> dict[str, Any]:
        """All are means over layers."""
        numbers: dict[str, Any] = {}
        for kind in KINDS:
            fast, slow = quarter_shares(arrays[kind])
            numbers |= {
                f"{kind}_slow_share": slow.mean(),
                f"{kind}_fast_share": fast.mean(),
                f"{kind}_unevenness": unevenness(arrays[kind]).mean(),
            }
        return numbers

    def draw(self, arrays: Arrays) -> Figure:
        tops = {kind: float(arrays[kind].max()) for kind in KINDS}
        titles = [f"Mean norm by layer, {kind}s: 0 to {top:.3g}" for kind, top in tops.items()]
        with panels(titles, columns=2, width=390) as (figure, plots):
            for axes, (kind, top) in zip(plots, tops.items(), strict=True):
                cells(axes, arrays[kind], PAIRS, "layer", top)
        return figure
