"""Heads that attend by position alone, and how close their scores come to Cauchy–Schwarz bounds.

Barbero et al. (Round and Round), arXiv 2410.06205: §5 with Fig. 5 and 6, App. D.2; §4 for the bound
of each frequency, App. D.1 with Tables 3–5 for the bound of the whole score. The paper finds such
heads by their use of the fastest pairs. Here they are found by their attention, so that it works
for every position embedding, and their use of pairs is reported where the embedding rotates. A
score equals its bound if the rotated query and key point in the same direction, as in the
construction of Thm. 5.3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fope_lab.analysis.base import Analysis, Arrays, Floats, Progress, Sequences, Subject
from fope_lab.analysis.reading import (
    PAIRS,
    ReadsPassages,
    attention_weights,
    by_pair,
    embedding_of,
    pair_norms,
    quarter_shares,
    read,
    rotated_frequencies,
)
from fope_lab.config.annotations import Doc, Interval
from fope_lab.drawing.panels import cells, curve, legend, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

MOST_NUMBERS = 6
"""The most columns of cells with room for their numbers in a third of a figure."""
PATTERN, SCORED = 24, 8
"""The numbers of tokens that attention patterns show, and that scores are drawn for."""
POSITIONAL = 0.5
"""A head is called positional if more than this share of its attention is at a single offset."""
OFFSETS = {"own": 0, "previous": 1}
"""How many tokens back the heads attend that every rotation can make."""
KINDS = {**OFFSETS, "back2": 2}
"""The same, with heads that attend to an earlier token still."""
TOKENS = {"own": "the current token", "previous": "the previous token"}
KIND_TOKENS = {**TOKENS, "back2": "the token 2 back"}
FASTEST = "norm of the keys in the fastest quarter of the pairs"


def weights_at(patterns: Tensor, offsets: Sequence[int]) -> Floats:
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


def uniform_weights(length: int, offsets: Sequence[int]) -> Floats:
    """Return `weights_at` of a head that attends equally to all tokens: (offsets,)."""
    seen = np.arange(1, length + 1)
    return np.array([(1 / seen[max(offset, 1) :]).mean() for offset in offsets])


def best_heads(weights: Floats) -> NDArray[np.int64]:
    """Return layers and heads (n, 2), from the highest of weights (layers, heads) to the lowest."""
    order = np.argsort(-weights, axis=None, kind="stable")
    return np.stack(np.unravel_index(order, weights.shape), axis=-1)


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

    The earlier token is two places back. A pattern is drawn for the best head of each kind.
    """

    sequences: Sequences = 10
    length: Annotated[int, Interval(ge=4), Doc("The tokens of a passage.")] = 256

    def compute(self, subject: Subject, progress: Progress) -> Arrays:
        """Compute, for each of `kinds`, `weights` (kinds, layers, heads) as in `weights_at`;
        `ranking` (kinds, layers · heads, 2), layers and heads from the best on; `patterns` (kinds,
        drawn, drawn) of the best head among the first tokens; and `uniform` (kinds,), the weight
        of uniform attention.

        If the embedding rotates, `query` and `key` (layers, heads, head_dim/2) are the mean norms
        by pair, from the fastest to the slowest; grouped heads share a key.
        """
        import torch

        config, offsets = subject.model.config, tuple(KINDS.values())
        layers, heads, drawn = config.num_layers, config.num_heads, min(PATTERN, self.length)
        weights = np.zeros((len(offsets), layers, heads))
        patterns = np.zeros((layers, heads, drawn, drawn))
        norms = {kind: np.zeros((layers, heads, config.head_dim // 2)) for kind in ("query", "key")}
        rows = self.passages(subject)
        for i, at in read(subject.model, rows, progress):
            layer, q, k = at.layer, at.q, at.k
            with torch.inference_mode():
                attention = attention_weights(at.scores, at.seen)
                weights[:, layer] += weights_at(attention, offsets) / len(rows)
                if i == 0:
                    patterns[layer] = attention[0, :, :drawn, :drawn].cpu().numpy()
                for kind, x in (("query", q), ("key", k)):
                    mean = pair_norms(x)[0].mean(dim=1).repeat_interleave(heads // x.shape[1], 0)
                    norms[kind][layer] += mean.cpu().numpy() / len(rows)
        ranking = np.stack([best_heads(of_kind) for of_kind in weights])
        return {
            "weights": weights,
            "ranking": ranking,
            "patterns": np.stack([patterns[layer, head] for layer, head in ranking[:, 0]]),
            "uniform": uniform_weights(self.length, offsets),
            **(norms if embedding_of(subject.model, 0).rotates else {}),
        }

    number_words: ClassVar[Mapping[str, str]] = {
        **{
            f"{kind}_{name}": words.format(token)
            for kind, token in KIND_TOKENS.items()
            for name, words in (
                ("layer", "layer of the best head for {}"),
                ("head", "number of the best head for {}"),
                ("weight", "attention to {} in the best head, share"),
                (
                    "weight_of_even_attention",
                    "attention to {} in a head that attends evenly, share",
                ),
                ("heads", "heads with more than half of their attention on {}, count"),
                ("fast_share", f"{FASTEST}, best head for {{}}, share"),
            )
        },
        "mean_fast_share": f"{FASTEST}, mean of all heads, share",
        "fast_share_correlation": (
            "correlation over heads of that share with the attention to the current or previous"
            " token"
        ),
    }

    def numbers(self, arrays: Arrays) -> dict[str, Any]:
        """Without a rotation, no number is of pairs."""
        metrics: dict[str, Any] = {}
        for i, kind in enumerate(KINDS):
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
            for i, kind in enumerate(KINDS):
                metrics[f"{kind}_fast_share"] = fast[tuple(arrays["ranking"][i, 0])]
            metrics["mean_fast_share"] = fast.mean()
            best = arrays["weights"][:2].max(axis=0)
            if fast.std() and best.std():
                metrics["fast_share_correlation"] = np.corrcoef(fast.ravel(), best.ravel())[0, 1]
        return metrics

    def draw(self, arrays: Arrays) -> Figure:
        rotates = "key" in arrays
        titles = []
        for i, name in enumerate(KIND_TOKENS.values()):
            layer, head = arrays["ranking"][i, 0]
            titles += [f"Mean attention to {name}", f"Layer {layer}, head {head}"]
            titles += ["Its mean norms by pair"] * rotates
        with panels(titles, columns=3 if rotates else 2, height=230) as (figure, plots):
            left = iter(plots)
            for i in range(len(KINDS)):
                weights = arrays["weights"][i]
                fit = weights.shape[1] <= MOST_NUMBERS
                cells(next(left), weights, "head", "layer", numbers=fit)
                cells(next(left), arrays["patterns"][i], "attends to", "token")
                if rotates:
                    axes = next(left)
                    layer, head = arrays["ranking"][i, 0]
                    for slot, kind in enumerate(("query", "key")):
                        values = arrays[kind]
                        curve(axes, values[layer, head], slot, f"its {kind}")
                        mean = values.mean(axis=(0, 1))
                        curve(axes, mean, slot + 2, f"{kind}, mean of all heads")
                    axes.set(xlabel=PAIRS, ylim=(0, None))
            if rotates:
                legend(figure, plots[2])
        return figure


def scores_and_bounds(q: Tensor, k: Tensor, offset: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return what each pair of dimensions adds to the score between a token and the one `offset`
    back, the bound of each contribution, and the bound of the score.

    q and k (…, length, head_dim) are already rotated and have the same number of heads. The
    contributions and their bounds (products of the pairs' norms) are (…, length − offset,
    head_dim/2); the bounds of the scores (products of the whole norms) are (…, length − offset).
    All are divided by √head_dim, in float32. The contributions sum to the score. The norms are
    taken after the rotation because a Fourier series, unlike a rotation, changes them.
    """
    q, k = q.float()[..., offset:, :], k.float()[..., : k.shape[-2] - offset, :]
    scale = math.sqrt(q.shape[-1])
    contributions = (by_pair(q) * by_pair(k)).sum(dim=-2)
    bounds = pair_norms(q) * pair_norms(k)
    return contributions / scale, bounds / scale, q.norm(dim=-1) * k.norm(dim=-1) / scale


@dataclass(frozen=True, kw_only=True)
class CauchySchwarz(
    ReadsPassages,
    Analysis,
    name="cauchy-schwarz",
    source="Barbero et al. (Round and Round), arXiv 2410.06205, Tables 3–5 and §4",
    says=(
        "A head that attends to the current or the previous token scores it near its"
        " Cauchy–Schwarz bound, closer for the current token than for the previous, and other"
        " tokens far below."
    ),
    needs="text",
):
    """Scores and bounds, total and by pair, of the heads most on the current and previous token."""

    sequences: Sequences = 10
    length: Annotated[int, Interval(ge=4), Doc("The tokens of a passage.")] = 256

    def compute(self, subject: Subject, progress: Progress) -> Arrays:
        """Find the best head of each kind, own and previous: `heads` (kinds, 2), layer and head.

        Its scores with the current and the previous token are in `contribution` and `bound`
        (kinds, offsets, head_dim/2), means over tokens by pair; `total` (kinds, offsets), the mean
        bound of a whole score; and `scores` and `limits` (kinds, offsets, drawn), the first tokens'
        scores and their bounds, NaN for tokens that have no token so far back.
        """
        import torch

        rotated_frequencies(subject.model, self.name)
        config, drawn = subject.model.config, min(SCORED, self.length)
        shape = (len(OFFSETS), config.num_layers, config.num_heads)
        by_pairs = (*shape, config.head_dim // 2)
        weights, total = np.zeros(shape), np.zeros(shape)
        contribution, bound = np.zeros(by_pairs), np.zeros(by_pairs)
        scores, limits = np.full((2, *shape, drawn), np.nan)
        rows = self.passages(subject)
        for i, at in read(subject.model, rows, progress):
            layer, q, k, embedding, positions = at[:5]
            with torch.inference_mode():
                patterns = attention_weights(at.scores, at.seen)
                weights[:, layer] += weights_at(patterns, tuple(OFFSETS.values())) / len(rows)
                turned, keys = (x[0] for x in embedding.rotate(q, k, positions))
                keys = keys.repeat_interleave(len(turned) // len(keys), dim=0)
                for kind, offset in enumerate(OFFSETS.values()):
                    parts = scores_and_bounds(turned, keys, offset)
                    for sums, values in zip((contribution, bound, total), parts, strict=True):
                        sums[kind, layer] += values.mean(dim=1).cpu().numpy() / len(rows)
                    if i == 0:
                        shown = slice(drawn - offset)
                        whole = parts[0].sum(dim=-1)[:, shown]
                        scores[kind, layer, :, offset:] = whole.cpu().numpy()
                        limits[kind, layer, :, offset:] = parts[2][:, shown].cpu().numpy()
        heads = np.stack([best_heads(of_kind)[0] for of_kind in weights])
        measured = {"total": total, "contribution": contribution, "bound": bound}
        measured |= {"scores": scores, "limits": limits}
        return {
            "heads": heads,
            **{
                name: np.stack([values[:, layer, head] for layer, head in heads])
                for name, values in measured.items()
            },
        }

    @property
    def number_words(self) -> Mapping[str, str]:
        words: dict[str, str] = {}
        for kind, attended in TOKENS.items():
            words[f"{kind}_layer"] = f"layer of the head that attends to {attended}"
            words[f"{kind}_head"] = f"number of the head that attends to {attended}"
            for token, scored in TOKENS.items():
                score = f"score of {scored} in the head for {attended}"
                name = f"{kind}_head_{token}_token"
                words |= {
                    name: f"{score}, share of its bound",
                    f"{name}_of_pair_bounds": f"{score}, share of the sum of the pairs' bounds",
                    f"{name}_of_fast_bounds": (
                        f"{score}, fastest quarter of the pairs, share of their bounds"
                    ),
                }
        return words

    def numbers(self, arrays: Arrays) -> dict[str, Any]:
        metrics: dict[str, Any] = {}
        fastest = slice(max(arrays["bound"].shape[-1] // 4, 1))
        for i, head in enumerate(OFFSETS):
            metrics |= dict(zip((f"{head}_layer", f"{head}_head"), arrays["heads"][i], strict=True))
            for j, token in enumerate(OFFSETS):
                parts, bounds = arrays["contribution"][i, j], arrays["bound"][i, j]
                name = f"{head}_head_{token}_token"
                metrics[name] = parts.sum() / arrays["total"][i, j]
                metrics[f"{name}_of_pair_bounds"] = parts.sum() / bounds.sum()
                metrics[f"{name}_of_fast_bounds"] = parts[fastest].sum() / bounds[fastest].sum()
        return metrics

    def draw(self, arrays: Arrays) -> Figure:
        titles = []
        for (layer, head), name in zip(arrays["heads"], TOKENS.values(), strict=True):
            titles += [f"Layer {layer}, head {head}: most on {name}", "Its means by pair"]
        with panels(titles, columns=2, width=390, height=210) as (figure, plots):
            for i in range(len(OFFSETS)):
                by_token, by_pairs = plots[2 * i : 2 * i + 2]
                series = (
                    (by_token, arrays["limits"][i, i], arrays["scores"][i]),
                    (by_pairs, arrays["bound"][i, i], arrays["contribution"][i]),
                )
                for axes, limit, scores in series:
                    curve(axes, limit, 3, "bound for the token it attends to most")
                    for slot, name in enumerate(TOKENS.values()):
                        curve(axes, scores[slot], slot, f"score of {name}")
                by_token.set(xlabel="token", ylabel="score")
                by_pairs.set(xlabel=PAIRS, ylabel="contribution to the score")
            legend(figure, plots[0])
        return figure
