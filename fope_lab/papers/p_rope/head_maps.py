"""What an analysis of one head gives: its vectors by token and pair, its scores, its attention.

Barbero et al. (Round and Round), arXiv 2410.06205: App. D.1 for the scores, their bounds and the
part of one pair in them, App. D.2 for the maps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fope_lab.analysis.activations import embedding_of, record
from fope_lab.analysis.attention_pattern import attention_logits
from fope_lab.analysis.base import Arrays, NumberWords, Subject
from fope_lab.analysis.pairs import PAIRS, by_pair, frequencies_of
from fope_lab.analysis.passages import words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fope_lab.model.decoder import Decoder

SHOWN = 14
"""The number of letters at which words on an axis are cut."""
HEAD_WORDS: Mapping[str, str] = {
    "own_share_of_bound": "scores of tokens with themselves, share of their bounds",
    "previous_share_of_bound": "scores with the token before, share of the same bounds",
    "first_token_score": "scores of the first token, mean over the others",
    "highest_score": "highest score",
    "lowest_score": "lowest score",
    "channel_pair": "pair of dimensions with the largest keys, from 0",
    "channel_frequency": "frequency of that pair, radians per token",
    "channel_turn": "turn of that pair over the trained length, radians",
    "channel_first_token": "mean query of that pair times the first key",
    "channel_other_tokens": "mean query of that pair times the mean key of the others",
}
"""The numbers of every analysis of one head, and their words."""


def head_vectors(
    model: Decoder, row: NDArray[np.int64], layer: int, head: int
) -> dict[str, NDArray[np.float64]]:
    """Return what one head makes of the tokens of a row (n,).

    `query` and `key` (n, 2, head_dim/2) are its vectors by pair of dimensions, before rotation;
    `logits` (n, n) are its scores between a query and all keys, later ones too; `bound` (n,) is the
    Cauchy–Schwarz bound of each token's score with itself. Scores and bounds are divided by
    √head_dim. The norms of the bound are taken after rotation, which a Fourier series changes.
    """
    import torch

    tokens = torch.from_numpy(row)[None].to(model.embed_tokens.weight.device)
    positions = embedding_of(model, 0).positions(len(row), device=tokens.device)
    for index, q, k in record(model, tokens, positions):
        if index < layer:
            continue
        embedding = embedding_of(model, layer)
        with torch.inference_mode():
            of_key = head // (q.shape[1] // k.shape[1])
            logits = attention_logits(embedding, q, k, positions)[0, head]
            turned, keys = embedding.rotate(q, k, positions)
            norms = turned[0, head].double().norm(dim=-1) * keys[0, of_key].double().norm(dim=-1)
            return {
                "query": by_pair(q[0, head].double()).cpu().numpy(),
                "key": by_pair(k[0, of_key].double()).cpu().numpy(),
                "logits": logits.double().cpu().numpy(),
                "bound": norms.cpu().numpy() / q.shape[-1] ** 0.5,
            }
    raise AssertionError("the model has no such layer")


def head_maps(
    subject: Subject, row: NDArray[np.int64], layer: int, head: int, pair: int | None = None
) -> dict[str, NDArray[Any]]:
    """Return what an analysis shows of one head, with names for the tokens of a row (n,).

    `query` and `key` (n, head_dim/2) are norms by token and pair before rotation; `logits` and
    `weights` (n, n) scores before the softmax and after it, which are NaN and 0 for later keys;
    `bound` (n,) the bound of each token's score with itself; `words` (n,); `frequencies`
    (head_dim/2,) in radians per token, and `train_length` in tokens. `channel` (3, 2) has the means
    over all tokens after the first of the queries and of the keys of one pair, and its first key.
    This is `pair`, or the one with the largest mean norm of keys after the first token.
    """
    model = subject.model
    vectors = head_vectors(model, row, layer, head)
    query, key = vectors["query"], vectors["key"]
    norms = {name: np.linalg.norm(vectors[name], axis=1) for name in ("query", "key")}
    if pair is None:
        pair = int(norms["key"][1:].mean(axis=0).argmax())
    later = np.triu(np.ones((len(row), len(row)), dtype=bool), k=1)
    logits = np.where(later, np.nan, vectors["logits"])
    powers = np.exp(np.where(later, -np.inf, logits - np.nanmax(logits, axis=1, keepdims=True)))
    return {
        **norms,
        "logits": logits,
        "weights": powers / powers.sum(axis=1, keepdims=True),
        "bound": vectors["bound"],
        "words": np.array(words(subject, row)),
        "frequencies": frequencies_of(model),
        "train_length": np.array(model.train_length),
        "layer": np.array(layer),
        "head": np.array(head),
        "pair": np.array(pair),
        "channel": np.stack(
            [query[1:, :, pair].mean(axis=0), key[1:, :, pair].mean(axis=0), key[0, :, pair]]
        ),
    }


class ShowsHead:
    """Part of an analysis whose arrays are those of `head_maps`."""

    @property
    def number_names(self) -> tuple[str, ...]:
        """The names of all numbers that `numbers` can return."""
        return tuple(HEAD_WORDS)

    number_words: ClassVar[NumberWords] = NumberWords(HEAD_WORDS)

    def numbers(self, arrays: Arrays) -> dict[str, float]:
        """Return scores as shares of their bounds, sums over tokens after the first; the scores of
        the first token and the extremes; and the pair's part in the scores as in D.1: dot products
        of mean vectors, neither rotated nor divided by √head_dim."""
        logits, bound = arrays["logits"], arrays["bound"][1:].sum()
        query, others, first = arrays["channel"]
        pair = int(arrays["pair"])
        frequency = arrays["frequencies"][pair]
        return {
            "own_share_of_bound": float(logits.diagonal()[1:].sum() / bound),
            "previous_share_of_bound": float(logits.diagonal(-1).sum() / bound),
            "first_token_score": float(logits[1:, 0].mean()),
            "highest_score": float(np.nanmax(logits)),
            "lowest_score": float(np.nanmin(logits)),
            "channel_pair": float(pair),
            "channel_frequency": float(frequency),
            "channel_turn": float(frequency * arrays["train_length"]),
            "channel_first_token": float(query @ first),
            "channel_other_tokens": float(query @ others),
        }

    def draw(self, arrays: Arrays) -> Figure:
        """Draw the norms of queries and keys by token and pair, the scores, and the attention."""
        from fope_lab.drawing.panels import cells, panels

        logits = arrays["logits"]
        low, high = float(np.nanmin(logits)), float(np.nanmax(logits))
        where = f"layer {arrays['layer']}, head {arrays['head']}"
        maps: dict[str, tuple[NDArray[Any], str, str, float]] = {}
        for name, kind in (("Queries", "query"), ("Keys", "key")):
            top = float(arrays[kind].max())
            maps[f"{name}, {where}: norms up to {top:.3g}"] = (arrays[kind], PAIRS, "", top)
        raised = np.nan_to_num(logits - low, nan=0.0)
        span = max(high - low, 1e-12)
        maps[f"Scores: {low:.3g} to {high:.3g}"] = (raised, "key", "", span)
        maps["Attention"] = (arrays["weights"], "key", "", 1.0)
        names = [word[:SHOWN] for word in arrays["words"].tolist()]
        places = np.arange(len(names)) + 0.5
        with panels(list(maps), columns=2, width=390, height=320) as (figure, plots):
            for axes, (values, x_label, y_label, top) in zip(plots, maps.values(), strict=True):
                cells(axes, values, x_label, y_label, top)
                axes.set_yticks(places, names, fontsize=8)
                if x_label == "key":
                    axes.set_xticks(places, names, rotation=90, fontsize=8)
        return figure
