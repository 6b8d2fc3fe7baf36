"""One head of a model on one passage: its vectors token by token, its scores and its attention.

Barbero et al. (Round and Round), arXiv 2410.06205: App. D.1 with Tables 3–5, App. D.2 with
Fig. 11–13. `positional-heads` finds such heads. `marked-head` finds one that looks for a kind of
token, and shows it in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fope_lab.analysis.base import Analysis, Arrays, Progress, Subject
from fope_lab.analysis.pairs import rotated_frequencies
from fope_lab.analysis.passages import passages
from fope_lab.config.annotations import Doc, Interval
from fope_lab.data.problems import DataError
from fope_lab.papers.p_rope.head_maps import ShowsHead, head_maps

BOUND, OWN, PREVIOUS = "upper_bound", "own_score", "previous_score"


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
        """Compute the arrays of `head_maps`.

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
        rotated_frequencies(model, self.name)
        [row] = passages(subject, 1, self.length)
        arrays = head_maps(subject, row, self.layer, self.head, self.pair)
        progress(1, 1)
        return arrays

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
