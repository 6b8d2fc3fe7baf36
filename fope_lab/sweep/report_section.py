"""The report section of a sweep file: claims to judge, and which tables and figures to show.

It is in no stage's key: a claim that is added later is judged on the results that exist. Claims may
be given with the sentence of a paper that they stand for:

    claims:
      - "perplexity@1024: fope < rope"
      - quote: "FoPE demonstrates a significant advantage over all baselines in this task."
        place: §5.2
        claims: ["passkey@1024: fope > rope", "passkey@1024: fope > alibi"]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import MinLen

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.checks import Parsed
from fope_lab.config.options import Options, entry_of
from fope_lab.config.problems import ConfigError, FieldPath, Problem, shown

MIN_IN_LENGTH_ACCURACY = 0.8
Text = Annotated[str, MinLen(1)]


@dataclass(frozen=True)
class Sentence:
    """What a claim stands for: the words of a paper and where they are, and a note of ours. Without
    a quotation, the note says where the claim comes from."""

    quote: str = ""
    place: str = ""
    note: str = ""

    def __str__(self) -> str:
        where = f" ({self.place})" if self.place else ""
        quoted = f"“{self.quote}”{where}" if self.quote else ""
        return " ".join(filter(None, [quoted, self.note]))


@dataclass(frozen=True)
class StatedClaim:
    """A claim as a file states it: its text, its path under `report.claims`, and its basis."""

    text: str
    path: FieldPath
    basis: Sentence | None = None


@dataclass(frozen=True, kw_only=True)
class ClaimGroup(Options):
    """Claims that stand together for a sentence of a paper, or for none."""

    quote: Annotated[
        Text | None,
        Doc(
            "The sentence of the paper that the claims stand for, in its words. [...] stands for"
            " words that are left out."
        ),
    ] = None
    place: Annotated[Text | None, Doc("Where the sentence is in the paper, as in §5.2.")] = None
    note: Annotated[
        Text | None,
        Doc(
            "What the claims add to the sentence, such as a margin. Without a quote, where the"
            " claims come from."
        ),
    ] = None
    claims: Annotated[
        tuple[str, ...], MinLen(1), Doc("Claims, written as those that stand outside of a group.")
    ]

    def problems(self) -> Iterator[Problem]:
        if self.quote is None and self.note is None:
            yield Problem((), "has claims only", "a quote, or a note on where they come from")

    def idle_options(self) -> Mapping[str, str]:
        return {} if self.quote is not None else {"place": "there is no quote"}


def _parse(value: Any, base: Path) -> str | ClaimGroup:
    if isinstance(value, Mapping):
        return entry_of(ClaimGroup).read(value, base)
    if not isinstance(value, str):
        raise ConfigError(Problem((), f"found {shown(value)}", "text or a mapping with claims"))
    return value


ClaimOrGroup = Annotated[
    str | ClaimGroup,
    Parsed(_parse, lambda: {"anyOf": [{"type": "string"}, entry_of(ClaimGroup).json_schema()]}),
]
"""A claim, or claims with the sentence that they stand for."""


@dataclass(frozen=True, kw_only=True)
class ReportSection(Options):
    """What the report judges and shows; by default it shows all results."""

    claims: Annotated[
        tuple[ClaimOrGroup, ...],
        Doc(
            "Statements to test over the seeds, each of the form"
            " '[stage.]metric[(corpus)]@x [where axis=value, …]: a > b [> c]'. The sign > says that"
            " the number of a is larger, which is better for an accuracy and worse for a"
            " perplexity; < says that it is smaller. Other forms after the colon: 'a > 0.9' with a"
            " constant, 'a <= b * 1.01' or 'a >= b - 0.02' for no worse within a margin, 'a ~ b"
            " within 1%' for equivalence, and over a range of points @x1..x2 'a grows', 'a falls',"
            " 'a grows at most 5%' and 'a stays within 5%'. Claims that stand for a sentence of a"
            " paper are a mapping with it, {quote: …, place: §5.2, claims: […]}."
        ),
    ] = ()
    min_in_length_accuracy: Annotated[
        float,
        Interval(ge=0, le=1),
        Doc(
            "Lowest accuracy inside the trained length at which a task counts as learned. A claim"
            " about an accuracy is judged only if every seed reaches it."
        ),
    ] = field(default=MIN_IN_LENGTH_ACCURACY, metadata={"option": "learnt"})
    correction: Annotated[
        Literal["none", "holm"],
        Doc(
            "Correction of the p-values for the number of verdicts in the file. With holm, the"
            " chance that any verdict is wrong is at most 0.05 (Holm 1979)."
        ),
    ] = "none"
    tables: Annotated[
        tuple[str, ...] | None,
        Doc("Tables to show, each as '[stage.]metric[(corpus)]'. Default: all."),
    ] = None
    figures: Annotated[
        tuple[str, ...] | None,
        Doc("Figures to show, each as '[stage.]metric[(corpus)]'. Default: all."),
    ] = None

    @property
    def stated(self) -> tuple[StatedClaim, ...]:
        """Every claim with what it stands for, in and outside of groups."""
        stated: list[StatedClaim] = []
        for i, one in enumerate(self.claims):
            if isinstance(one, str):
                stated.append(StatedClaim(one, (i,)))
                continue
            basis = Sentence(one.quote or "", one.place or "", one.note or "")
            for j, text in enumerate(one.claims):
                stated.append(StatedClaim(text, (i, "claims", j), basis))
        return tuple(stated)
