"""One head of a model on one passage: its vectors token by token, its scores and its attention.

Barbero et al. (Round and Round), arXiv 2410.06205: App. D.1 with Tables 3–5 and Fig. 9, App. D.2
with Fig. 11–15. `positional-heads` and `semantic-heads` find the heads; this analysis shows one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fope_lab.analysis.activations import embedding_of, record
from fope_lab.analysis.attention_pattern import attention_logits
from fope_lab.analysis.base import Analysis, Arrays, Progress, Subject
from fope_lab.analysis.pairs import PAIRS, by_pair, rotated_frequencies
from fope_lab.analysis.passages import passages, words
from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.number_words import NumberWords
from fope_lab.data.problems import DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fope_lab.model.decoder import Decoder

SHOWN = 14
"""The number of letters at which words on an axis are cut."""
BOUND, OWN, PREVIOUS = "upper_bound", "own_score", "previous_score"


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


@dataclass(frozen=True, kw_only=True)
class AttentionHead(
    Analysis,
    name="attention-head",
    source="Barbero et al. (Round and Round), arXiv 2410.06205, Tables 3–5, Fig. 9 and 11–15",
    says=(
        "A diagonal head scores each token with itself near the Cauchy–Schwarz bound. In the"
        " apostrophe head, one slow pair adds to the scores of the first token and takes from those"
        " of all others."
    ),
    needs="text",
):
    """Norms of a head's queries and keys by token and pair, its scores, and its attention."""

    layer: Annotated[int, Interval(ge=0), Doc("The layer of the head, counted from 0.")] = 0
    head: Annotated[int, Interval(ge=0), Doc("The head, counted from 0.")] = 0
    length: Annotated[int, Interval(ge=3), Doc("The tokens of the passage.")] = 24
    tabled: Annotated[
        int, Interval(ge=2), Doc("The number of tokens, from the first, whose scores are tabled.")
    ] = 8
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

    def __post_init__(self) -> None:
        if self.tabled > self.length:
            raise ValueError(f"tabled {self.tabled} needs to be at most length {self.length}")

    @property
    def tokens(self) -> int:
        """The number of tokens of the passage."""
        return self.length

    def compute(self, subject: Subject | None, progress: Progress) -> Arrays:
        """Compute `query` and `key` (n, head_dim/2), norms by token and pair before rotation;
        `logits` and `weights` (n, n), scores before the softmax and after it, which are NaN and 0
        for later keys; `bound` (n,), the bound of each token's score with itself; `words` (n,);
        `frequencies` (head_dim/2,) in radians per token, `train_length` in tokens, and `channel`
        (3, 2), the means over all tokens after the first of the queries and keys of one pair of
        dimensions, `pair`, and its first key.

        Raises DataError if the model has no such head or pair, or if it rotates nothing.
        """
        assert subject is not None  # as it needs a text
        model, config = subject.model, subject.model.config
        for name, count in (
            ("layer", config.num_layers),
            ("head", config.num_heads),
            ("pair", config.head_dim // 2),
        ):
            given = getattr(self, name)
            if given is not None and given >= count:
                raise DataError(f"{name}: found {given}, needs at most {count - 1}")
        frequencies = rotated_frequencies(model, self.name)
        [row] = passages(subject, 1, self.length)
        vectors = head_vectors(model, row, self.layer, self.head)
        progress(1, 1)
        query, key = vectors["query"], vectors["key"]
        norms = {name: np.linalg.norm(vectors[name], axis=1) for name in ("query", "key")}
        pair = self.pair
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
            "frequencies": frequencies,
            "train_length": np.array(model.train_length),
            "pair": np.array(pair),
            "channel": np.stack(
                [query[1:, :, pair].mean(axis=0), key[1:, :, pair].mean(axis=0), key[0, :, pair]]
            ),
        }

    @property
    def curves(self) -> Mapping[str, Sequence[int]]:
        """The scores of Tables 3–5, at the positions of the tabled tokens."""
        positions = range(self.tabled)
        return {BOUND: positions, OWN: positions, PREVIOUS: positions[1:]}

    def curve_values(self, arrays: Arrays) -> Mapping[str, Sequence[float]]:
        """The bound of a token's score with itself, that score, and the one with the token before,
        all divided by √head_dim."""
        logits, tabled = arrays["logits"], self.tabled
        return {
            BOUND: arrays["bound"][:tabled].tolist(),
            OWN: logits.diagonal()[:tabled].tolist(),
            PREVIOUS: logits.diagonal(-1)[: tabled - 1].tolist(),
        }

    @property
    def number_names(self) -> tuple[str, ...]:
        """The names of all numbers that `numbers` can return."""
        return (
            *("own_share_of_bound", "previous_share_of_bound", "first_token_score"),
            *("highest_score", "lowest_score"),
            *("channel_pair", "channel_frequency", "channel_turn"),
            *("channel_first_token", "channel_other_tokens"),
        )

    def numbers(
        self, arrays: Arrays
    ) -> Annotated[
        dict[str, float],
        NumberWords(
            {
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
        ),
    ]:
        """Return the tabled scores as shares of their bounds, sums over tokens after the first; the
        scores of the first token and the extremes; and the pair's part in the scores as in D.1: dot
        products of mean vectors, neither rotated nor divided by √head_dim."""
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
        where = f"layer {self.layer}, head {self.head}"
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
