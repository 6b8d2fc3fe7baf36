"""How close the scores of positional heads come to their Cauchy–Schwarz bounds.

Barbero et al. (Round and Round), arXiv 2410.06205: §4 for the bound of each frequency, App. D.1
with Tables 3–5 for the bound of the whole score. A score equals its bound if the rotated query and
key point in the same direction, as in the construction of Thm. 5.3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray

from fope_lab.analysis.activations import embedding_of, record
from fope_lab.analysis.attention_pattern import attention_weights
from fope_lab.analysis.base import Analysis, Arrays, NumberWords, Progress, Subject
from fope_lab.analysis.pairs import PAIRS, by_pair, pair_norms, rotated_frequencies
from fope_lab.analysis.passages import ReadsPassages, passages
from fope_lab.config.annotations import Doc, Interval
from fope_lab.papers.p_rope.positional_heads import best_heads, weights_at

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from fope_lab.model.decoder import Decoder

OFFSETS = {"own": 0, "previous": 1}
"""How many tokens back each kind of head attends; "own" is the current token."""


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


def survey(
    model: Decoder,
    rows: NDArray[np.int64],
    drawn: int,
    progress: Progress = lambda done, total: None,
) -> dict[str, NDArray[np.float64]]:
    """Measure the scores of all heads on rows (passages, length), at each of OFFSETS.

    Returns the mean attention `weights` (offsets, layers, heads); the means over tokens of each
    pair's `contribution` and its `bound` (offsets, layers, heads, head_dim/2), and of the score's
    bound, `total` (offsets, layers, heads); and for the first tokens of the first passage the
    `scores` and their bounds, `limits` (offsets, layers, heads, drawn), NaN for tokens that have
    no token so far back.
    """
    import torch

    config = model.config
    shape = (len(OFFSETS), config.num_layers, config.num_heads)
    measured = {name: np.zeros(shape) for name in ("weights", "total")}
    measured |= {
        name: np.zeros((*shape, config.head_dim // 2)) for name in ("contribution", "bound")
    }
    measured |= {name: np.full((*shape, drawn), np.nan) for name in ("scores", "limits")}
    device = model.embed_tokens.weight.device
    for i, row in enumerate(rows):
        positions = embedding_of(model, 0).positions(len(row), device=device)
        tokens = torch.from_numpy(row)[None].to(device)
        for layer, q, k in record(model, tokens, positions):
            embedding = embedding_of(model, layer)
            with torch.inference_mode():
                patterns = attention_weights(embedding, q, k, positions)
                at = weights_at(patterns, tuple(OFFSETS.values()))
                measured["weights"][:, layer] += at / len(rows)
                turned, keys = (x[0] for x in embedding.rotate(q, k, positions))
                keys = keys.repeat_interleave(len(turned) // len(keys), dim=0)
                for kind, offset in enumerate(OFFSETS.values()):
                    parts, bounds, total = scores_and_bounds(turned, keys, offset)
                    for name, values in (("contribution", parts), ("bound", bounds)):
                        measured[name][kind, layer] += values.mean(dim=1).cpu().numpy() / len(rows)
                    measured["total"][kind, layer] += total.mean(dim=1).cpu().numpy() / len(rows)
                    if i == 0:
                        shown = slice(drawn - offset)
                        scores = parts.sum(dim=-1)[:, shown].cpu().numpy()
                        measured["scores"][kind, layer, :, offset:] = scores
                        measured["limits"][kind, layer, :, offset:] = total[:, shown].cpu().numpy()
        progress(i + 1, len(rows))
    return measured


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

    sequences: Annotated[int, Interval(ge=1), Doc("The number of passages that are read.")] = 10
    length: Annotated[int, Interval(ge=4), Doc("The tokens of a passage.")] = 256
    drawn: Annotated[
        int, Interval(ge=2), Doc("The number of tokens that the scores are drawn for.")
    ] = 8

    def compute(self, subject: Subject | None, progress: Progress) -> Arrays:
        """Find the best head of each kind, own and previous: `heads` (kinds, 2), layer and head.

        Its scores with the current and the previous token are in `contribution` and `bound`
        (kinds, offsets, head_dim/2), means over tokens by pair; `total` (kinds, offsets), the mean
        bound of a whole score; and `scores` and `limits` (kinds, offsets, drawn), the first tokens'
        scores and their bounds.
        """
        assert subject is not None  # as it needs a text
        rotated_frequencies(subject.model, self.name)
        rows = passages(subject, self.sequences, self.length)
        measured = survey(subject.model, rows, min(self.drawn, self.length), progress)
        heads = np.stack([best_heads(weights)[0] for weights in measured.pop("weights")])
        of_heads = {
            name: np.stack([values[:, layer, head] for layer, head in heads])
            for name, values in measured.items()
        }
        return {"heads": heads, **of_heads}

    @property
    def number_names(self) -> tuple[str, ...]:
        """The names of all numbers that `numbers` can return."""
        shares = ("", "_of_pair_bounds", "_of_fast_bounds")
        return tuple(
            name
            for head in OFFSETS
            for name in (
                f"{head}_layer",
                f"{head}_head",
                *(f"{head}_head_{token}_token{share}" for token in OFFSETS for share in shares),
            )
        )

    number_words = NumberWords(
        {
            "{head}_layer": "layer of the head that attends to {head}",
            "{head}_head_{token}_token_of_pair_bounds": (
                "score of {token} in the head for {head}, share of the sum of the pairs' bounds"
            ),
            "{head}_head_{token}_token_of_fast_bounds": (
                "score of {token} in the head for {head},"
                " fastest quarter of the pairs, share of their bounds"
            ),
            "{head}_head_{token}_token": (
                "score of {token} in the head for {head}, share of its bound"
            ),
            "{head}_head": "number of the head that attends to {head}",
        },
        {
            "own": "the current token",
            "previous": "the previous token",
        },
    )

    def numbers(self, arrays: Arrays) -> dict[str, float]:
        """Return, for each of the two heads, the mean score of the current and of the previous
        token as a share of its mean bound: that of the whole score, the sum of all pairs' bounds,
        and the same for the fastest quarter of the pairs alone."""
        metrics: dict[str, float] = {}
        fastest = slice(max(arrays["bound"].shape[-1] // 4, 1))
        for i, head in enumerate(OFFSETS):
            metrics |= dict(zip((f"{head}_layer", f"{head}_head"), arrays["heads"][i], strict=True))
            for j, token in enumerate(OFFSETS):
                parts, bounds = arrays["contribution"][i, j], arrays["bound"][i, j]
                name = f"{head}_head_{token}_token"
                metrics[name] = parts.sum() / arrays["total"][i, j]
                metrics[f"{name}_of_pair_bounds"] = parts.sum() / bounds.sum()
                metrics[f"{name}_of_fast_bounds"] = parts[fastest].sum() / bounds[fastest].sum()
        return {name: float(value) for name, value in metrics.items()}

    def draw(self, arrays: Arrays) -> Figure:
        """Draw each of the two heads: the first tokens' scores, as in Tables 3–5, and by pair."""
        from fope_lab.drawing.panels import curve, legend, panels

        names = ["current token", "previous token"]
        titles = []
        for (layer, head), name in zip(arrays["heads"], names, strict=True):
            titles += [f"Layer {layer}, head {head}: most on the {name}", "Its means by pair"]
        with panels(titles, columns=2, width=390, height=210) as (figure, plots):
            for i in range(len(OFFSETS)):
                by_token, by_pairs = plots[2 * i : 2 * i + 2]
                series = (
                    (by_token, arrays["limits"][i, i], arrays["scores"][i]),
                    (by_pairs, arrays["bound"][i, i], arrays["contribution"][i]),
                )
                for axes, limit, scores in series:
                    curve(axes, limit, 3, "bound for the token it attends to most")
                    for slot, name in enumerate(names):
                        curve(axes, scores[slot], slot, f"score of the {name}")
                by_token.set_xlabel("token")
                by_pairs.set_xlabel(PAIRS)
                by_token.set_ylabel("score")
                by_pairs.set_ylabel("contribution to the score")
            legend(figure, plots[0])
        return figure
