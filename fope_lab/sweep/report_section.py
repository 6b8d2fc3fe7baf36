"""The report section of a sweep file: claims to judge, and which tables and figures to show.

It is in no stage's key: a claim that is added later is judged on the results that exist.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.options import Options
from fope_lab.sweep.claim_group import ClaimOrGroup, StatedClaim, stated_claims

MIN_IN_LENGTH_ACCURACY = 0.8


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
        return tuple(stated_claims(self.claims))
