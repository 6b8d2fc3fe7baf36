"""What a sweep file says of its report: claims to judge, and a paper's table beside its own.

None of it is in any stage's key: a claim that is added later is judged on what is there.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fope_lab.stages import Section

LEARNT = 0.8


class ReportSection(Section):
    """What the report shows beside the tables and figures of everything that was measured."""

    claims: Annotated[
        list[str],
        Field(description="'[stage.]metric[(corpus)]@x [where axis=value, …]: a > b [> c]'"),
    ] = []  # noqa: RUF012
    learnt: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="the least accuracy inside the trained length; with a seed that has less, a"
            " claim about an accuracy is not judged",
        ),
    ] = LEARNT
    tables: Annotated[
        list[str] | None, Field(description="'[stage.]metric[(corpus)]'; default all")
    ] = None
    figures: Annotated[
        list[str] | None, Field(description="'[stage.]metric[(corpus)]'; default all")
    ] = None
