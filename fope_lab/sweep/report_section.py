"""The report section of a sweep file: claims to judge, and which tables and figures to show.

It is in no stage's key: a claim that is added later is judged on the results that exist.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fope_lab.stages import Section

MIN_IN_LENGTH_ACCURACY = 0.8


class ReportSection(Section):
    """What the report judges and shows; by default it shows all results."""

    claims: Annotated[
        list[str],
        Field(
            description="Statements to test over the seeds, each of the form"
            " '[stage.]metric[(corpus)]@x [where axis=value, …]: a > b [> c]'."
        ),
    ] = []  # noqa: RUF012
    min_in_length_accuracy: Annotated[
        float,
        Field(
            alias="learnt",
            ge=0,
            le=1,
            description="Lowest accuracy inside the trained length at which a task counts as"
            " learned. A claim about an accuracy is judged only if every seed reaches it.",
        ),
    ] = MIN_IN_LENGTH_ACCURACY
    tables: Annotated[
        list[str] | None,
        Field(description="Tables to show, each as '[stage.]metric[(corpus)]'. Default: all."),
    ] = None
    figures: Annotated[
        list[str] | None,
        Field(description="Figures to show, each as '[stage.]metric[(corpus)]'. Default: all."),
    ] = None
