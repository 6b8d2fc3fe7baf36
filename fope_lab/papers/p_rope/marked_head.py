"""The head that looks most for a kind of token, by default an apostrophe, on text full of them.

Barbero et al. (Round and Round), arXiv 2410.06205: App. D.1 with Fig. 9, App. D.2 with Fig. 14 and
15. The paper names no number of these heads; they are found as in `semantic_heads.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from annotated_types import MinLen

from fope_lab.analysis.base import Analysis, Arrays, NumberWords, Progress, Subject
from fope_lab.analysis.pairs import rotated_frequencies
from fope_lab.analysis.passages import ReadsPassages, passages
from fope_lab.config.annotations import Doc, Interval
from fope_lab.papers.p_rope.head_maps import HEAD_WORDS, ShowsHead, head_maps
from fope_lab.papers.p_rope.positional_heads import best_heads
from fope_lab.papers.p_rope.semantic_heads import (
    head_scores,
    marked_tokens,
    require_some_marked,
    richest_window,
)

MARKED_WORDS = {
    "marked_score": "scores of a marked token that is the one before, mean",
    "unmarked_score": "scores of tokens that are neither marked nor the first, mean",
}


@dataclass(frozen=True, kw_only=True)
class MarkedHead(
    ShowsHead,
    ReadsPassages,
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

    characters: Annotated[
        str, MinLen(1), Doc("The characters, one of which a sought token contains.")
    ] = "'’"
    looks: Annotated[
        Literal["behind", "anywhere"],
        Doc(
            "The place where the head looks for them. behind: at the token before, as in Fig. 9 and"
            " 14. anywhere: at all tokens so far, as a head like that of Fig. 15 does."
        ),
    ] = "behind"
    sequences: Annotated[int, Interval(ge=1), Doc("The number of passages that are read.")] = 20
    length: Annotated[int, Interval(ge=4), Doc("The tokens of a passage.")] = 256
    drawn: Annotated[
        int, Interval(ge=4), Doc("The number of tokens that the maps show, after the prefix.")
    ] = 20

    def compute(self, subject: Subject | None, progress: Progress) -> Arrays:
        """Compute the arrays of `head_maps` for the head that looks most for marked tokens, on the
        window of the text with the most of them; and `marked` (n,), which they are.

        Raises DataError if the text has no marked token or only marked ones, or if the model
        rotates nothing.
        """
        assert subject is not None  # as it needs a text
        rotated_frequencies(subject.model, self.name)
        is_marked = marked_tokens(subject, self.characters)
        rows = passages(subject, self.sequences, self.length)
        require_some_marked(is_marked[rows], self.characters)
        scores = head_scores(subject.model, rows, is_marked[rows], progress)
        best = {
            "behind": scores["behind"] - scores["elsewhere"],
            "anywhere": scores["mass"],
        }[self.looks]
        layer, head = (int(index) for index in best_heads(best)[0])
        size = min(self.drawn, self.length)
        start = richest_window(is_marked[subject.tokens], size)
        row = np.array([*subject.tokenizer.prefix_ids, *subject.tokens[start : start + size]])
        return {**head_maps(subject, row, layer, head), "marked": is_marked[row]}

    @property
    def number_names(self) -> tuple[str, ...]:
        """The names of all numbers that `numbers` can return."""
        return (*super().number_names, "layer", "head", *MARKED_WORDS)

    number_words = NumberWords(
        {
            **HEAD_WORDS,
            **MARKED_WORDS,
            "layer": "layer of the head",
            "head": "number of the head",
        }
    )

    def numbers(self, arrays: Arrays) -> dict[str, float]:
        """Return the numbers of every head, which head it is, the mean score of a marked token with
        the one after it, and that of all tokens that are neither marked nor the first."""
        logits, marked = arrays["logits"], arrays["marked"].copy()
        marked[0] = False  # the first token attracts attention for being first
        before = np.flatnonzero(marked[:-1])
        numbers = super().numbers(arrays)
        numbers |= {"layer": float(arrays["layer"]), "head": float(arrays["head"])}
        if len(before):
            numbers["marked_score"] = float(logits[before + 1, before].mean())
        others = logits[:, 1:][:, ~marked[1:]]
        if np.isfinite(others).any():
            numbers["unmarked_score"] = float(np.nanmean(others))
        return numbers
