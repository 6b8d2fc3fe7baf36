"""How much a model uses each frequency of a rotation: the norms of its queries and keys by pair.

Barbero et al. (Round and Round), arXiv 2410.06205: §4 with Fig. 3 and 4. By Cauchy–Schwarz, the
norms of a pair bound the contribution of its frequency to a score.
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
from fope_lab.data.problems import DataError
from fope_lab.drawing.panels import cells, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fope_lab.model.decoder import Decoder

KINDS = ("query", "key")


def mean_norms(
    model: Decoder, rows: NDArray[np.int64], progress: Progress = lambda done, total: None
) -> dict[str, Floats]:
    """Return the mean 2-norm of each pair over the tokens of rows (passages, length), before
    rotation: `query` (layers, num_heads, head_dim/2) and `key` (layers, num_kv_heads, head_dim/2),
    pair 0 first."""
    import torch

    config = model.config
    sums = {
        kind: np.zeros((config.num_layers, heads, config.head_dim // 2))
        for kind, heads in zip(KINDS, (config.num_heads, config.num_kv_heads), strict=True)
    }
    for _, at in read(model, rows, progress):
        for kind, x in zip(KINDS, (at.q, at.k), strict=True):
            sums[kind][at.layer] += pair_norms(x)[0].mean(dim=1, dtype=torch.float64).cpu().numpy()
    return {kind: total / len(rows) for kind, total in sums.items()}


@dataclass(frozen=True, kw_only=True)
class FrequencyUsage(
    ReadsPassages,
    Analysis,
    name="frequency-usage",
    source="Barbero et al. (Round and Round), arXiv 2410.06205, Fig. 3 and 4",
    says=(
        "Most of the norm is in the slowest pairs; the fastest pairs are used most in the first and"
        " the last layer, by a few heads."
    ),
    needs="text",
):
    """Mean norms of queries and keys by pair and layer, and by pair and head in one layer."""

    sequences: Sequences = 10
    length: Annotated[int, Interval(ge=2), Doc("The tokens of a passage.")] = 256
    layer: Annotated[int, Interval(ge=0), Doc("The layer whose heads are shown.")] = 0

    number_words: ClassVar[Mapping[str, str]] = {
        f"{kind}_{part}": f"norm of the {kind} in the {words}"
        for kind in KINDS
        for part, words in (
            ("slow_share", "slowest quarter of the pairs, share, mean over layers"),
            ("fast_share", "fastest quarter of the pairs, share, mean over layers"),
            ("fast_share_first", "fastest quarter of the pairs, share, first layer"),
            ("fast_share_last", "fastest quarter of the pairs, share, last layer"),
            ("fast_share_between", "fastest quarter of the pairs, share, layers between"),
        )
    }

    def compute(self, subject: Subject, progress: Progress) -> Arrays:
        """Compute `frequencies` (head_dim/2,) in radians per token, from fast to slow, and the mean
        norms `query` (layers, num_heads, head_dim/2) and `key` (layers, num_kv_heads, head_dim/2).

        Raises DataError if the model has no such layer, or if it rotates nothing.
        """
        layers = subject.model.config.num_layers
        if self.layer >= layers:
            raise DataError(f"layer: found {self.layer}, needs at most {layers - 1}")
        frequencies = rotated_frequencies(subject.model, self.name)
        norms = mean_norms(subject.model, self.passages(subject), progress)
        return {"frequencies": frequencies, **norms}

    def numbers(self, arrays: Arrays) -> dict[str, Any]:
        metrics: dict[str, Any] = {}
        for kind in KINDS:
            fast, slow = quarter_shares(arrays[kind].mean(axis=1))
            metrics |= {f"{kind}_slow_share": slow.mean(), f"{kind}_fast_share": fast.mean()}
            metrics |= {f"{kind}_fast_share_first": fast[0], f"{kind}_fast_share_last": fast[-1]}
            if len(fast) > 2:
                metrics[f"{kind}_fast_share_between"] = fast[1:-1].mean()
        return metrics

    def draw(self, arrays: Arrays) -> Figure:
        names = dict(zip(KINDS, ("queries", "keys"), strict=True))
        maps = {
            f"Mean norm by layer, {name}": (arrays[kind].mean(axis=1), "layer")
            for kind, name in names.items()
        } | {
            f"Mean norm in layer {self.layer}, {name}": (arrays[kind][self.layer], "head")
            for kind, name in names.items()
        }
        titles = [f"{title}: 0 to {values.max():.3g}" for title, (values, _) in maps.items()]
        with panels(titles, columns=2, width=390) as (figure, plots):
            for axes, (values, rows) in zip(plots, maps.values(), strict=True):
                cells(axes, values, PAIRS, rows, float(values.max()))
        return figure
