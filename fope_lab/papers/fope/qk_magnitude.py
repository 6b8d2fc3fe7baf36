"""The magnitude of queries and keys in each dimension, before rotation.

Hua et al. (FoPE), arXiv 2412.17739, §5.6 and A.1 with Fig. 7, which shows Llama 2 7B over about
1,000 tokens. A dimension is undertrained if it completes no cycle in the trained length:
r = ωN/2π < 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fope_lab.analysis.base import Analysis, Arrays, Floats, Progress, Sequences, Subject
from fope_lab.analysis.reading import ReadsPassages, frequencies_of, read
from fope_lab.analysis.rotation import undertrained
from fope_lab.config.annotations import Doc, Interval
from fope_lab.drawing.panels import curve, legend, panels
from fope_lab.drawing.svg import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor


LABELLED = 8
"""The most layers that a figure distinguishes; of more, all but the mean look the same."""


def token_means(vectors: Tensor) -> Floats:
    """Return the means over tokens of the absolute values and of the values of vectors (batch,
    heads, length, head_dim): (2, heads, head_dim)."""
    exact = vectors.double()
    return np.stack([x.mean(dim=(0, 2)).cpu().numpy() for x in (exact.abs(), exact)])


def magnitudes(means: Floats) -> Floats:
    """Return the mean over heads of the absolute values of `token_means` (…, heads, head_dim):
    (…, head_dim). Absolute values keep heads with means of opposite sign from cancelling."""
    return np.asarray(np.abs(means).mean(axis=-2))


def spans(marked: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield the runs of marked dimensions (n,), as their first index and the one after the last."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], marked, [False])).astype(np.int8)))
    yield from ((int(start), int(end)) for start, end in edges.reshape(-1, 2))


@dataclass(frozen=True, kw_only=True)
class QkMagnitude(
    ReadsPassages,
    Analysis,
    name="qk-magnitude",
    source="Hua et al. (FoPE), arXiv 2412.17739, Fig. 7",
    says=(
        "In every layer, queries and keys are larger in the dimensions of undertrained frequencies"
        " than in the others."
    ),
    needs="text",
):
    """Mean absolute queries and keys by layer and dimension, over heads and tokens."""

    sequences: Sequences = 4
    length: Annotated[int, Interval(ge=2), Doc("The tokens of a passage.")] = 256

    number_words: ClassVar[Mapping[str, str]] = {
        f"undertrained_{vectors}{kind}_{number}": words.format(f"{mean}{vectors}")
        for vectors in ("queries", "keys")
        for kind, mean in (("", ""), ("_mean", "mean "))
        for number, words in (
            ("ratio", "{} in undertrained dimensions over those in others, ratio"),
            ("larger", "layers in which {} are larger in undertrained dimensions, share"),
        )
    }

    def compute(self, subject: Subject, progress: Progress) -> Arrays:
        """Compute `queries` and `keys` (2, layers, head_dim): by dimension, the mean absolute
        values, and the absolute values of each head's mean over all tokens (see `magnitudes`); and
        `frequencies` (head_dim/2,) in radians per token, and `train_length` in tokens."""
        model, config = subject.model, subject.model.config
        queries, keys = (
            np.zeros((2, config.num_layers, heads, config.head_dim))
            for heads in (config.num_heads, config.num_kv_heads)
        )
        for _, at in read(model, self.passages(subject), progress):
            queries[:, at.layer] += token_means(at.q) / self.sequences
            keys[:, at.layer] += token_means(at.k) / self.sequences
        return {
            "queries": magnitudes(queries),
            "keys": magnitudes(keys),
            "frequencies": frequencies_of(model),
            "train_length": np.array(model.train_length),
        }

    def numbers(self, arrays: Arrays) -> dict[str, Any]:
        """Ratios are means over layers of the undertrained to the other rotating dimensions.

        There are none if the embedding rotates nothing, or if all or none of the rotating pairs
        complete a turn.
        """
        frequencies, train_length = arrays["frequencies"], int(arrays["train_length"])
        marked = np.tile(undertrained(frequencies, train_length), 2)  # pair i: i, i + head_dim/2
        others = np.tile(frequencies > 0, 2) & ~marked
        if not marked.any() or not others.any():
            return {}
        metrics = {}
        for name in ("queries", "keys"):
            for kind, values in zip(("", "_mean"), arrays[name], strict=True):
                ratio = values[:, marked].mean(axis=1) / values[:, others].mean(axis=1)
                metrics[f"undertrained_{name}{kind}_ratio"] = ratio.mean()
                metrics[f"undertrained_{name}{kind}_larger"] = (ratio > 1).mean()
        return metrics

    def draw(self, arrays: Arrays) -> Figure:
        marked = np.tile(undertrained(arrays["frequencies"], int(arrays["train_length"])), 2)
        with panels(("Queries", "Keys"), width=360, height=240) as (figure, axes):
            for plot, name in zip(axes, ("queries", "keys"), strict=True):
                values = arrays[name][0]
                many = len(values) > LABELLED
                for layer, row in enumerate(values):
                    label = ("layers" if layer == 0 else None) if many else f"layer {layer}"
                    curve(plot, row, 3 if many else layer, label)
                if many:
                    curve(plot, values.mean(axis=0), 0, "mean of all layers")
                shade: dict[str, Any] = {"color": COLOURS[1][0], "alpha": 0.14, "linewidth": 0}
                for index, (start, end) in enumerate(spans(marked)):
                    label = "undertrained" if index == 0 else None
                    plot.axvspan(start - 0.5, end - 0.5, **shade, label=label)
                plot.set(xlabel="dimension", ylabel="mean absolute value")
            legend(figure, axes[0])
        return figure
