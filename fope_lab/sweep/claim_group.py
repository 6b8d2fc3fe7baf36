"""Claims of a sweep file that stand for one sentence of a paper, and where each of them is.

claims:
  - "perplexity@1024: fope < rope"
  - quote: "FoPE demonstrates a significant advantage over all baselines in this task."
    place: §5.2
    claims: ["passkey@1024: fope > rope", "passkey@1024: fope > alibi"]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import MinLen

from fope_lab.config.annotations import Doc
from fope_lab.config.checks import Parsed
from fope_lab.config.options import Options, entry_of
from fope_lab.config.problems import ConfigError, FieldPath, Problem, shown

Text = Annotated[str, MinLen(1)]


@dataclass(frozen=True)
class Sentence:
    """What a claim stands for: the words of a paper and where they are, and a note of ours.

    A claim without a quotation stands for no sentence of a paper, and the note says where it comes
    from.
    """

    quote: str = ""
    place: str = ""
    note: str = ""

    def __str__(self) -> str:
        where = f" ({self.place})" if self.place else ""
        quoted = f"“{self.quote}”{where}" if self.quote else ""
        return " ".join(filter(None, [quoted, self.note]))


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

    @property
    def basis(self) -> Sentence:
        """What each of the claims stands for."""
        return Sentence(self.quote or "", self.place or "", self.note or "")

    def problems(self) -> Iterator[Problem]:
        """A group that says nothing about its claims."""
        if self.quote is None and self.note is None:
            yield Problem((), "has claims only", "a quote, or a note on where they come from")

    def idle_options(self) -> Mapping[str, str]:
        """A place without a quotation."""
        return {} if self.quote is not None else {"place": "there is no quote"}


def _parse(value: Any, base: Path) -> str | ClaimGroup:
    if isinstance(value, Mapping):
        return entry_of(ClaimGroup).read(value, base)
    if not isinstance(value, str):
        raise ConfigError(Problem((), f"found {shown(value)}", "text or a mapping with claims"))
    return value


def _schema() -> dict[str, Any]:
    return {"anyOf": [{"type": "string"}, entry_of(ClaimGroup).json_schema()]}


ClaimOrGroup = Annotated[str | ClaimGroup, Parsed(_parse, _schema)]
"""A claim, or claims with the sentence that they stand for."""


@dataclass(frozen=True)
class StatedClaim:
    """A claim as a file states it: its text, its path under `report.claims`, and its basis."""

    text: str
    path: FieldPath
    basis: Sentence | None = None


def stated_claims(claims: tuple[str | ClaimGroup, ...]) -> Iterator[StatedClaim]:
    """Yield every claim, in and outside of groups, in its order."""
    for i, each in enumerate(claims):
        if isinstance(each, str):
            yield StatedClaim(each, (i,))
        else:
            for j, text in enumerate(each.claims):
                yield StatedClaim(text, (i, "claims", j), each.basis)
