"""Heads that look for a kind of token, by default an apostrophe.

Barbero et al. (Round and Round), arXiv 2410.06205: §6 with Fig. 7. In the head that the
paper finds, the token right after an apostrophe attends to the apostrophe, and all other tokens
attend to the first token: the head selects by content and by position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import MinLen
from numpy.typing import NDArray

from fope_lab.analysis.base import Analysis, Arrays, Progress, Sequences, Subject
from fope_lab.analysis.frequency_usage import mean_norms
from fope_lab.analysis.reading import (
    PAIRS,
    ReadsPassages,
    attention_patterns,
    attention_weights,
    embedding_of,
    quarter_shares,
    read,
    words,
)
from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.problems import Problem
from fope_lab.data.problems import DataError
from fope_lab.drawing.panels import cells, curve, legend, panels
from fope_lab.papers.p_rope.positional_heads import best_heads

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fope_lab.model.decoder import Decoder

DRAWN = 20
"""The number of tokens that are drawn, after the prefix."""
SHOWN = 14
"""The number of letters at which words on an axis are cut."""


def marked_tokens(subject: Subject, characters: str) -> NDArray[np.bool_]:
    """Return a mask (vocab_size,) of the tokens whose text contains one of the characters."""
    known = min(subject.tokenizer.tokens, subject.model.config.vocab_size)
    texts = (subject.tokenizer.decode([token]) for token in range(known))
    marked = np.zeros(subject.model.config.vocab_size, dtype=bool)
    marked[:known] = [any(letter in text for letter in characters) for text in texts]
    return marked


@dataclass(frozen=True, kw_only=True)
class LooksForMarks(ReadsPassages):
    """Part of an analysis of heads that look for some tokens of a text."""

    characters: Annotated[
        str, MinLen(1), Doc("The characters, one of which a sought token contains.")
    ] = "'’"
    sequences: Sequences = 20
    length: Annotated[int, Interval(ge=4), Doc("The tokens of a passage.")] = 256

    def marked_passages(
        self, subject: Subject
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
        """Return the passages (sequences, length), a mask (vocab_size,) of the sought tokens, and
        the window to draw (see `richest_window`).

        Raises DataError if all or none of the tokens between the ends of passages are sought.
        """
        is_marked, rows = marked_tokens(subject, self.characters), self.passages(subject)
        inside = is_marked[rows][:, 1:-1]
        if inside.all() or not inside.any():
            which = "all" if inside.any() else "none"
            message = (
                f"found {self.characters!r}, needs characters that occur in some tokens of the text"
                f" but not in others: {which} of the {rows.size} tokens have one"
            )
            raise DataError(Problem(("characters",), message))
        return rows, is_marked, richest_window(subject, is_marked, min(DRAWN, self.length))


def head_scores(
    model: Decoder,
    rows: NDArray[np.int64],
    marked: NDArray[np.bool_],
    progress: Progress = lambda done, total: None,
) -> dict[str, NDArray[Any]]:
    """Measure the scores of all heads on rows (passages, length), in which `marked` (passages,
    length) are the tokens that a head may look for.

    The scores are means over tokens, each (layers, heads). `mass` is the attention to marked
    tokens, over tokens that can attend to one; `chance` () is the same for uniform attention.
    `behind` is the attention to the previous token where that is marked, and `elsewhere` where it
    is not; `first` is the attention to the first token where the previous token is not marked.
    `occurrences` () counts the marked tokens that have a token after them.

    The first token of a passage never counts as marked, because it attracts attention for being
    first. Among the others that have a token after them, at least one must be marked and one not.
    """
    import torch

    shape = (model.config.num_layers, model.config.num_heads)
    mass, behind, elsewhere, first = np.zeros((4, *shape))
    marked = marked.copy()
    marked[:, 0] = False
    may_look = np.cumsum(marked, axis=1) > 0
    chance = (np.cumsum(marked, axis=1) / np.arange(1, rows.shape[1] + 1))[may_look].mean()
    before = marked[:, :-1]
    for i, at in read(model, rows, progress):
        of_row = (marked[i], may_look[i], before[i])
        on, looks, is_behind = (torch.from_numpy(x).to(at.q.device) for x in of_row)
        with torch.inference_mode():
            pattern = attention_weights(at.scores, at.seen)[0]
            previous = pattern.diagonal(offset=-1, dim1=-2, dim2=-1).double()
            sums = (
                (mass, pattern[:, looks][..., on].sum(dim=(1, 2), dtype=torch.float64)),
                (behind, previous[:, is_behind].sum(dim=1)),
                (elsewhere, previous[:, ~is_behind].sum(dim=1)),
                (first, pattern[:, 1:, 0][:, ~is_behind].double().sum(dim=1)),
            )
            for total, value in sums:
                total[at.layer] += value.cpu().numpy()
    others = (~before).sum()
    return {
        "mass": mass / may_look.sum(),
        "chance": np.array(chance),
        "behind": behind / before.sum(),
        "elsewhere": elsewhere / others,
        "first": first / others,
        "occurrences": np.array(before.sum()),
    }


def richest_window(subject: Subject, marked: NDArray[np.bool_], size: int) -> NDArray[np.int64]:
    """Return the `size` tokens of the text with the most `marked` (vocab_size,) ones, without the
    first and the last, after the tokenizer's prefix. `size` is at least 3 and at most the text's.
    """
    inside = marked[subject.tokens][1:-1]
    start = np.convolve(inside, np.ones(size - 2, dtype=np.int64), mode="valid").argmax()
    return np.array([*subject.tokenizer.prefix_ids, *subject.tokens[start : start + size]])


@dataclass(frozen=True, kw_only=True)
class SemanticHeads(
    LooksForMarks,
    Analysis,
    name="semantic-heads",
    source="Barbero et al. (Round and Round), arXiv 2410.06205, §6, Fig. 7",
    says=(
        "In one head, the token after an apostrophe attends to the apostrophe, and other tokens"
        " attend to the first token; its slow pairs have bands of high norm."
    ),
    needs="text",
):
    """The heads that attend most to tokens with one of `characters`, from any or the next token."""

    def compute(self, subject: Subject, progress: Progress) -> Arrays:
        """Compute `mass`, `behind`, `elsewhere` and `first` (layers, heads), `chance` and
        `occurrences` () as in `head_scores`; and `heads` (2, 2), layer and head of the highest mass
        and of the highest `behind` − `elsewhere`.

        For a short text with many marked tokens: `patterns` (2, n, n) of the two heads, `marked`
        (n,) and `words` (n,). If the embedding rotates, `query` and `key` (2, head_dim/2) are the
        heads' mean norms by pair, from the fastest to the slowest.

        Raises DataError if the text has no marked token, or only marked tokens.
        """
        model = subject.model
        rows, is_marked, window = self.marked_passages(subject)
        scores = head_scores(
            model, rows, is_marked[rows], lambda done, total: progress(done, 2 * total)
        )
        best = (scores["mass"], scores["behind"] - scores["elsewhere"])
        heads = np.stack([best_heads(values)[0] for values in best])
        arrays = {
            **scores,
            "heads": heads,
            "patterns": patterns_of(model, window, heads),
            "marked": is_marked[window],
            "words": np.array(words(subject, window)),
        }
        if embedding_of(model, 0).rotates:
            norms = mean_norms(model, rows, lambda done, total: progress(total + done, 2 * total))
            for kind, values in norms.items():
                groups = model.config.num_heads // values.shape[1]
                arrays[kind] = np.stack([values[layer, head // groups] for layer, head in heads])
        return arrays

    @property
    def number_words(self) -> Mapping[str, str]:
        slow = "norm in the slowest quarter of the pairs"
        return {
            "occurrences": "occurrences of the marked tokens, count",
            "mass_layer": "layer of the head with the highest mass on marked tokens",
            "mass_head": "number of the head with the highest mass on marked tokens",
            "mass": "mass on marked tokens in that head, share",
            "mass_of_even_attention": "mass on marked tokens in a head that attends evenly, share",
            "behind_layer": "layer of the head that looks most behind marked tokens",
            "behind_head": "number of the head that looks most behind marked tokens",
            "behind_marked": "attention behind marked tokens in that head, share",
            "behind_others": "attention elsewhere in that head, share",
            "first_token_else": "attention to the first token otherwise in that head, share",
            "mass_slow_share": f"{slow}, head of the mass, share",
            "behind_slow_share": f"{slow}, head that looks behind, share",
        }

    def numbers(self, arrays: Arrays) -> dict[str, Any]:
        """Without a rotation, no number is of pairs."""
        (mass_layer, mass_head), (layer, head) = arrays["heads"]
        metrics = {
            "occurrences": arrays["occurrences"],
            "mass_layer": mass_layer,
            "mass_head": mass_head,
            "mass": arrays["mass"][mass_layer, mass_head],
            "mass_of_even_attention": arrays["chance"],
            "behind_layer": layer,
            "behind_head": head,
            "behind_marked": arrays["behind"][layer, head],
            "behind_others": arrays["elsewhere"][layer, head],
            "first_token_else": arrays["first"][layer, head],
        }
        if "key" in arrays:
            _, slow = quarter_shares(arrays["key"])
            metrics |= {"mass_slow_share": slow[0], "behind_slow_share": slow[1]}
        return metrics

    def draw(self, arrays: Arrays) -> Figure:
        scores = (arrays["mass"] - arrays["chance"], arrays["behind"] - arrays["elsewhere"])
        titles = []
        for name, values, (layer, head) in zip(
            ("To marked tokens − uniform attention", "To the previous token, marked − other"),
            scores,
            arrays["heads"],
            strict=True,
        ):
            titles += [f"{name}: 0 to {max(values.max(), 0):.2g}", f"Layer {layer}, head {head}"]
            titles += ["Its mean norms by pair"] * ("key" in arrays)
        columns = len(titles) // 2
        marks = zip(arrays["words"].tolist(), arrays["marked"], strict=True)
        names = [f"▸{word[:SHOWN]}" if marked else word[:SHOWN] for word, marked in marks]
        places = np.arange(len(names)) + 0.5
        with panels(titles, columns=columns, width=340, height=320) as (figure, plots):
            for i, values in enumerate(scores):
                mapped, pattern, *usage = plots[columns * i : columns * (i + 1)]
                cells(mapped, values, "head", "layer", max(float(values.max()), 0.0))
                cells(pattern, arrays["patterns"][i], "attends to (marked: ▸)", "")
                pattern.set_xticks(places, names, rotation=90, fontsize=8)
                pattern.set_yticks(places, names, fontsize=8)
                for axes in usage:
                    for slot, kind in enumerate(("query", "key")):
                        curve(axes, arrays[kind][i], slot, kind)
                    axes.set(xlabel=PAIRS, ylim=(0, None))
            if "key" in arrays:
                legend(figure, plots[2])
        return figure


def patterns_of(
    model: Decoder, text: NDArray[np.int64], heads: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return the attention (heads, n, n) of heads (heads, 2), given as layer and head, on a text
    (n,)."""
    import torch

    tokens = torch.from_numpy(text)[None].to(model.embed_tokens.weight.device)
    patterns = np.empty((len(heads), len(text), len(text)), np.float32)
    for layer, weights in attention_patterns(model, tokens):
        for place in np.flatnonzero(heads[:, 0] == layer):
            patterns[place] = weights[0, heads[place, 1]].cpu().numpy()
    return patterns
