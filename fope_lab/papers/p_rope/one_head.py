"""One head of a model on one passage: its vectors token by token, its scores and its attention.

Barbero et al. (Round and Round), arXiv 2410.06205: App. D.1 with Tables 3–5 and Fig. 9 for the
scores, their bounds and the part of one pair in them, App. D.2 with Fig. 11–15 for the maps.
`positional-heads` finds heads for `attention-head`. The paper names no number of the heads that
`marked-head` shows, by default on text full of apostrophes; they are found as in semantic_heads.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fope_lab.analysis.base import Analysis, Arrays, Progress, Subject
from fope_lab.analysis.reading import (
    PAIRS,
    attention_logits,
    by_pair,
    frequencies_of,
    passages,
    record,
    rotated_frequencies,
    words,
)
from fope_lab.config.annotations import Doc, Interval
from fope_lab.data.problems import DataError
from fope_lab.drawing.panels import cells, panels
from fope_lab.papers.p_rope.positional_heads import best_heads
from fope_lab.papers.p_rope.semantic_heads import SHOWN, LooksForMarks, head_scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TABLED = 8
"""The number of tokens, from the first, whose scores are curves."""
BOUND, OWN, PREVIOUS = "upper_bound", "own_score", "previous_score"


def head_maps(
    subject: Subject, row: NDArray[np.int64], layer: int, head: int, pair: int | None = None
) -> dict[str, NDArray[Any]]:
    """Return what an analysis shows of one head, with names for the tokens of a row (n,).

    `query` and `key` (n, head_dim/2) are norms by token and pair before rotation; `logits` and
    `weights` (n, n) scores before the softmax and after it, which are NaN and 0 for later keys;
    `bound` (n,) the Cauchy–Schwarz bound of each token's score with itself; `words` (n,);
    `frequencies` (head_dim/2,) in radians per token, and `train_length` in tokens. `channel` (3, 2)
    has the means over all tokens after the first of the queries and of the keys of one pair, and
    its first key. This is `pair`, or the one with the largest mean norm of keys after the first
    token. Scores and bounds are divided by √head_dim.
    """
    import torch

    model = subject.model
    tokens = torch.from_numpy(row)[None].to(model.embed_tokens.weight.device)
    at = next(islice(record(model, tokens), layer, None))
    _, q, k, embedding, positions = at[:5]
    of_key = head // (q.shape[1] // k.shape[1])
    with torch.inference_mode():
        scores = attention_logits(at.scores, at.seen)[0, head].double().cpu().numpy()
        # Norms are taken after rotation, because a Fourier series changes them.
        turned, keys = embedding.rotate(q, k, positions)
        bound = turned[0, head].double().norm(dim=-1) * keys[0, of_key].double().norm(dim=-1)
    query, key = (by_pair(x.double()).cpu().numpy() for x in (q[0, head], k[0, of_key]))
    norms = {"query": np.linalg.norm(query, axis=1), "key": np.linalg.norm(key, axis=1)}
    if pair is None:
        pair = int(norms["key"][1:].mean(axis=0).argmax())
    later = np.triu(np.ones((len(row), len(row)), dtype=bool), k=1)
    logits = np.where(later, np.nan, scores)
    powers = np.exp(np.where(later, -np.inf, logits - np.nanmax(logits, axis=1, keepdims=True)))
    return {
        **norms,
        "logits": logits,
        "weights": powers / powers.sum(axis=1, keepdims=True),
        "bound": bound.cpu().numpy() / q.shape[-1] ** 0.5,
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

    number_words: ClassVar[Mapping[str, str]] = {
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

    def numbers(self, arrays: Arrays) -> dict[str, Any]:
        """Shares of bounds are of sums over tokens after the first. The pair's part in the scores
        is as in D.1: dot products of mean vectors, neither rotated nor divided by √head_dim."""
        logits, bound = arrays["logits"], arrays["bound"][1:].sum()
        query, others, first = arrays["channel"]
        pair = int(arrays["pair"])
        frequency = arrays["frequencies"][pair]
        return {
            "own_share_of_bound": logits.diagonal()[1:].sum() / bound,
            "previous_share_of_bound": logits.diagonal(-1).sum() / bound,
            "first_token_score": logits[1:, 0].mean(),
            "highest_score": np.nanmax(logits),
            "lowest_score": np.nanmin(logits),
            "channel_pair": pair,
            "channel_frequency": frequency,
            "channel_turn": frequency * arrays["train_length"],
            "channel_first_token": query @ first,
            "channel_other_tokens": query @ others,
        }

    def draw(self, arrays: Arrays) -> Figure:
        logits = arrays["logits"]
        low, high = float(np.nanmin(logits)), float(np.nanmax(logits))
        where = f"layer {arrays['layer']}, head {arrays['head']}"
        maps: dict[str, tuple[NDArray[Any], str, float]] = {}
        for name, kind in (("Queries", "query"), ("Keys", "key")):
            top = float(arrays[kind].max())
            maps[f"{name}, {where}: norms up to {top:.3g}"] = (arrays[kind], PAIRS, top)
        raised = np.nan_to_num(logits - low, nan=0.0)
        maps[f"Scores: {low:.3g} to {high:.3g}"] = (raised, "key", max(high - low, 1e-12))
        maps["Attention"] = (arrays["weights"], "key", 1.0)
        names = [word[:SHOWN] for word in arrays["words"].tolist()]
        places = np.arange(len(names)) + 0.5
        with panels(list(maps), columns=2, width=390, height=320) as (figure, plots):
            for axes, (values, label, top) in zip(plots, maps.values(), strict=True):
                cells(axes, values, label, "", top)
                axes.set_yticks(places, names, fontsize=8)
                if label == "key":
                    axes.set_xticks(places, names, rotation=90, fontsize=8)
        return figure


@dataclass(frozen=True, kw_only=True)
class AttentionHead(
    ShowsHead,
    Analysis,
    name="attention-head",
    source="Barbero et al. (Round and Round), arXiv 2410.06205, Tables 3–5 and Fig. 11–13",
    says="A diagonal head scores each token with itself near the Cauchy–Schwarz bound.",
    needs="text",
):
    """Norms of a head's queries and keys by token and pair, its scores, and its attention."""

    layer: Annotated[int, Interval(ge=0), Doc("The layer of the head, counted from 0.")] = 0
    head: Annotated[int, Interval(ge=0), Doc("The head, counted from 0.")] = 0
    length: Annotated[int, Interval(ge=3), Doc("The tokens of the passage.")] = 24
    pair: (
        Annotated[
            int,
            Interval(ge=0),
            Doc(
                "The pair of dimensions whose part in the scores is measured, from 0 for the"
                " fastest (default: the one with the largest keys after the first token)."
            ),
        ]
        | None
    ) = None

    @property
    def tokens(self) -> int:
        """The number of tokens of the passage."""
        return self.length

    def compute(self, subject: Subject, progress: Progress) -> Arrays:
        """Compute the arrays of `head_maps`.

        Raises DataError if the model has no such head or pair, or if it rotates nothing.
        """
        config = subject.model.config
        counts = {"layer": config.num_layers, "head": config.num_heads}
        for name, count in (*counts.items(), ("pair", config.head_dim // 2)):
            given = getattr(self, name)
            if given is not None and given >= count:
                raise DataError(f"{name}: found {given}, needs at most {count - 1}")
        rotated_frequencies(subject.model, self.name)
        [row] = passages(subject, 1, self.length)
        arrays = head_maps(subject, row, self.layer, self.head, self.pair)
        progress(1, 1)
        return arrays

    @property
    def curves(self) -> Mapping[str, Sequence[int]]:
        """The scores of Tables 3–5, at the positions of the tabled tokens."""
        positions = range(min(TABLED, self.length))
        return {BOUND: positions, OWN: positions, PREVIOUS: positions[1:]}

    def curve_values(self, arrays: Arrays) -> Mapping[str, Sequence[float]]:
        """The bound of a token's score with itself, that score, and the one with the token before,
        all divided by √head_dim."""
        logits = arrays["logits"]
        return {
            BOUND: arrays["bound"][:TABLED].tolist(),
            OWN: logits.diagonal()[:TABLED].tolist(),
            PREVIOUS: logits.diagonal(-1)[: TABLED - 1].tolist(),
        }


@dataclass(frozen=True, kw_only=True)
class MarkedHead(
    ShowsHead,
    LooksForMarks,
    Analysis,
    name="marked-head",
    source="Barbero et al. (Round and Round), arXiv 2410.06205, D.1, Fig. 9, 14 and 15",
    says=(
        "In the apostrophe head, the score of an apostrophe right before is the highest, that of"
        " the first token is next, and all others are negative: one slow pair adds to the scores of"
        " the first token and takes from those of all others."
    ),
    needs="text",
):
    """Norms of the head's queries and keys by token and pair, its scores, and its attention."""

    looks: Annotated[
        Literal["behind", "anywhere"],
        Doc(
            "The place where the head looks for them. behind: at the token before, as in Fig. 9 and"
            " 14. anywhere: at all tokens so far, as a head like that of Fig. 15 does."
        ),
    ] = "behind"

    def compute(self, subject: Subject, progress: Progress) -> Arrays:
        """Compute the arrays of `head_maps` for the head that looks most for marked tokens, on the
        window of the text with the most of them; and `marked` (n,), which they are.

        Raises DataError if the text has no marked token or only marked ones, or if the model
        rotates nothing.
        """
        rotated_frequencies(subject.model, self.name)
        rows, is_marked, window = self.marked_passages(subject)
        scores = head_scores(subject.model, rows, is_marked[rows], progress)
        behind = scores["behind"] - scores["elsewhere"]
        layer, head = best_heads(behind if self.looks == "behind" else scores["mass"])[0].tolist()
        return {**head_maps(subject, window, layer, head), "marked": is_marked[window]}

    number_words: ClassVar[Mapping[str, str]] = {
        **ShowsHead.number_words,
        "layer": "layer of the head",
        "head": "number of the head",
        "marked_score": "scores of a marked token that is the one before, mean",
        "unmarked_score": "scores of tokens that are neither marked nor the first, mean",
    }

    def numbers(self, arrays: Arrays) -> dict[str, Any]:
        logits, marked = arrays["logits"], arrays["marked"].copy()
        marked[0] = False  # the first token attracts attention for being first
        before = np.flatnonzero(marked[:-1])
        numbers = super().numbers(arrays)
        numbers |= {"layer": arrays["layer"], "head": arrays["head"]}
        if len(before):
            numbers["marked_score"] = logits[before + 1, before].mean()
        others = logits[:, 1:][:, ~marked[1:]]
        if np.isfinite(others).any():
            numbers["unmarked_score"] = np.nanmean(others)
        return numbers
