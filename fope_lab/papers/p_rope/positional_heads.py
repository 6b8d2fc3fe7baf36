"""Heads that attend by position alone: to the current token, the previous, or one further back.

Barbero et al. (Round and Round), arXiv 2410.06205: §5 with Fig. 5 and 6, App. D.2. The paper finds
such heads by their use of the fastest pairs. This analysis finds them by their attention, so that
it works for every position embedding, and reports their use of pairs where the embedding rotates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray

from fope_lab.analysis.activations import embedding_of, record
from fope_lab.analysis.attention_pattern import attention_weights
from fope_lab.analysis.base import Analysis, Arrays, NumberWords, Progress, Subject
from fope_lab.analysis.pairs import PAIRS, pair_norms, quarter_shares
from fope_lab.analysis.passages import ReadsPassages, passages
from fope_lab.config.annotations import Doc, Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from fope_lab.model.decoder import Decoder

MOST_NUMBERS = 6
"""The most columns of cells with room for their numbers in a third of a figure."""
POSITIONAL = 0.5
"""A head is called positional if more than this share of its attention is at a single offset."""


def weights_at(patterns: Tensor, offsets: Sequence[int]) -> NDArray[np.float64]:
    """Return the mean attention (offsets, heads) to the token `offset` places back, for patterns
    (batch, heads, length, length).

    The mean leaves out the first token, which can attend only to itself, and tokens without another
    so far back.
    """
    return np.stack(
        [
            patterns[..., max(offset, 1) :, :]
            .diagonal(offset=max(offset, 1) - offset, dim1=-2, dim2=-1)
            .double()
            .mean(dim=(0, -1))
            .cpu()
            .numpy()
            for offset in offsets
        ]
    )


def uniform_weights(length: int, offsets: Sequence[int]) -> NDArray[np.float64]:
    """Return `weights_at` of a head that attends equally to all tokens: (offsets,)."""
    seen = np.arange(1, length + 1)
    return np.array([(1 / seen[max(offset, 1) :]).mean() for offset in offsets])


def best_heads(weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return layers and heads (n, 2), from the highest of weights (layers, heads) to the lowest."""
    order = np.argsort(-weights, axis=None, kind="stable")
    return np.stack(np.unravel_index(order, weights.shape), axis=-1)


def survey(
    model: Decoder,
    rows: NDArray[np.int64],
    offsets: Sequence[int],
    drawn: int,
    progress: Progress = lambda done, total: None,
) -> dict[str, NDArray[np.float64]]:
    """Measure the attention of all heads on rows (passages, length).

    Returns `weights` (offsets, layers, heads) as in `weights_at`; `patterns` (layers, heads, drawn,
    drawn), the attention among the first tokens of the first passage; and `query` and `key`
    (layers, heads, head_dim/2), mean norms by pair, where grouped heads share a key.
    """
    import torch

    config = model.config
    layers, heads, pairs = config.num_layers, config.num_heads, config.head_dim // 2
    weights = np.zeros((len(offsets), layers, heads))
    patterns = np.zeros((layers, heads, drawn, drawn))
    norms = {kind: np.zeros((layers, heads, pairs)) for kind in ("query", "key")}
    device = model.embed_tokens.weight.device
    for i, row in enumerate(rows):
        tokens = torch.from_numpy(row)[None].to(device)
        positions = embedding_of(model, 0).positions(len(row), device=device)
        for layer, q, k in record(model, tokens, positions):
            with torch.inference_mode():
                attention = attention_weights(embedding_of(model, layer), q, k, positions)
                weights[:, layer] += weights_at(attention, offsets) / len(rows)
                if i == 0:
                    patterns[layer] = attention[0, :, :drawn, :drawn].cpu().numpy()
                for kind, x in (("query", q), ("key", k)):
                    mean = pair_norms(x)[0].mean(dim=1).repeat_interleave(heads // x.shape[1], 0)
                    norms[kind][layer] += mean.cpu().numpy() / len(rows)
        progress(i + 1, len(rows))
    return {"weights": weights, "patterns": patterns, **norms}


@dataclass(frozen=True, kw_only=True)
class PositionalHeads(
    ReadsPassages,
    Analysis,
    name="positional-heads",
    source="Barbero et al. (Round and Round), arXiv 2410.06205, Fig. 5 and 6",
    says=(
        "Some heads attend to the current or to the previous token, whatever it is; their queries"
        " and keys use the fastest pairs most."
    ),
    needs="text",
):
    """Attention of every head to the current, the previous and an earlier token; the best patterns.

    The earlier token is `offset` places back. A pattern is drawn for the best head of each kind.
    """

    sequences: Annotated[int, Interval(ge=1), Doc("The number of passages that are read.")] = 10
    length: Annotated[int, Interval(ge=4), Doc("The tokens of a passage.")] = 256
    offset: Annotated[int, Interval(ge=2), Doc("How many places back the earlier token is.")] = 2
    drawn: Annotated[
        int, Interval(ge=2), Doc("The number of tokens that the attention patterns show.")
    ] = 24

    def __post_init__(self) -> None:
        if self.offset >= self.length:
            raise ValueError(f"offset {self.offset} needs to be less than length {self.length}")

    @property
    def kinds(self) -> dict[str, int]:
        """How many tokens back each kind of head attends; "own" is the current token."""
        return {"own": 0, "previous": 1, f"back{self.offset}": self.offset}

    def compute(self, subject: Subject | None, progress: Progress) -> Arrays:
        """Compute, for each of `kinds`, `weights` (kinds, layers, heads); `ranking` (kinds,
        layers · heads, 2), layers and heads from the best on; `patterns` (kinds, drawn, drawn) of
        the best head; and `uniform` (kinds,), the weight of uniform attention.

        If the embedding rotates, `query` and `key` (layers, heads, head_dim/2) are the mean norms
        by pair, from the fastest to the slowest.
        """
        assert subject is not None  # as it needs a text
        offsets = tuple(self.kinds.values())
        drawn = min(self.drawn, self.length)
        rows = passages(subject, self.sequences, self.length)
        measured = survey(subject.model, rows, offsets, drawn, progress)
        ranking = np.stack([best_heads(weights) for weights in measured["weights"]])
        arrays = {
            "weights": measured["weights"],
            "ranking": ranking,
            "patterns": np.stack(
                [measured["patterns"][layer, head] for layer, head in ranking[:, 0]]
            ),
            "uniform": uniform_weights(self.length, offsets),
        }
        if embedding_of(subject.model, 0).rotates:
            arrays |= {"query": measured["query"], "key": measured["key"]}
        return arrays

    @property
    def number_names(self) -> tuple[str, ...]:
        """The names of all numbers that `numbers` can return."""
        parts = ("layer", "head", "weight", "weight_of_even_attention", "heads", "fast_share")
        of_kinds = (f"{kind}_{part}" for kind in self.kinds for part in parts)
        return (*of_kinds, "mean_fast_share", "fast_share_correlation")

    number_words = NumberWords(
        {
            "mean_fast_share": (
                "norm of the keys in the fastest quarter of the pairs, mean of all heads, share"
            ),
            "{token}_weight_of_even_attention": (
                "attention to {token} in a head that attends evenly, share"
            ),
            "{token}_weight": "attention to {token} in the best head, share",
            "{token}_layer": "layer of the best head for {token}",
            "{token}_head": "number of the best head for {token}",
            "{token}_heads": "heads with more than half of their attention on {token}, count",
            "{token}_fast_share": (
                "norm of the keys in the fastest quarter of the pairs, best head for {token}, share"
            ),
            "fast_share_correlation": (
                "correlation over heads of that share with"
                " the attention to the current or previous token"
            ),
        },
        {
            "own": "the current token",
            "previous": "the previous token",
            "back{offset}": "the token {offset} back",
        },
    )

    def numbers(self, arrays: Arrays) -> dict[str, float]:
        """Return, for each kind, the best head, its weight, the weight of uniform attention, and
        the number of positional heads.

        If the embedding rotates, also return the share of the keys' norm in the fastest quarter of
        the pairs, for the best heads and as a mean over all heads, and the correlation over heads
        between this share and the higher of the weights on the current and the previous token.
        """
        metrics: dict[str, float] = {}
        for i, kind in enumerate(self.kinds):
            layer, head = arrays["ranking"][i, 0]
            weights = arrays["weights"][i]
            metrics |= {
                f"{kind}_layer": layer,
                f"{kind}_head": head,
                f"{kind}_weight": weights[layer, head],
                f"{kind}_weight_of_even_attention": arrays["uniform"][i],
                f"{kind}_heads": (weights > POSITIONAL).sum(),
            }
        if "key" in arrays:
            fast, _ = quarter_shares(arrays["key"])
            for i, kind in enumerate(self.kinds):
                metrics[f"{kind}_fast_share"] = fast[tuple(arrays["ranking"][i, 0])]
            metrics["mean_fast_share"] = fast.mean()
            best = arrays["weights"][:2].max(axis=0)
            if fast.std() and best.std():
                metrics["fast_share_correlation"] = np.corrcoef(fast.ravel(), best.ravel())[0, 1]
        return {name: float(value) for name, value in metrics.items()}

    def draw(self, arrays: Arrays) -> Figure:
        """Draw a row for each kind: all heads' weights, the best head's pattern and its norms."""
        from fope_lab.drawing.panels import cells, curve, legend, panels

        names = dict(zip(self.kinds, ("current token", "previous token"), strict=False))
        titles = []
        for i, kind in enumerate(self.kinds):
            layer, head = arrays["ranking"][i, 0]
            name = names.get(kind, f"token {self.offset} back")
            titles += [f"Mean attention to the {name}", f"Layer {layer}, head {head}"]
            titles += ["Its mean norms by pair"] * ("key" in arrays)
        with panels(titles, columns=3 if "key" in arrays else 2, height=230) as (figure, plots):
            left = iter(plots)
            for i in range(len(self.kinds)):
                weights = arrays["weights"][i]
                fit = weights.shape[1] <= MOST_NUMBERS
                cells(next(left), weights, "head", "layer", numbers=fit)
                cells(next(left), arrays["patterns"][i], "attends to", "token")
                if "key" in arrays:
                    axes = next(left)
                    layer, head = arrays["ranking"][i, 0]
                    for slot, kind in enumerate(("query", "key")):
                        values = arrays[kind]
                        curve(axes, values[layer, head], slot, f"its {kind}")
                        mean = values.mean(axis=(0, 1))
                        curve(axes, mean, slot + 2, f"{kind}, mean of all heads")
                    axes.set(xlabel=PAIRS, ylim=(0, None))
            if "key" in arrays:
                legend(figure, plots[2])
        return figure
