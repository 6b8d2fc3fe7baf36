"""Options that several frequency transforms share, with their meaning."""

from __future__ import annotations

from typing import Annotated

from fope_lab.config.annotations import Doc, Interval

Factor = Annotated[
    float,
    Interval(ge=1, le=1e6),
    Doc("The factor s by which the context is longer than the original."),
]
OriginalLength = Annotated[
    int, Interval(ge=1), Doc("The original length in tokens (default: the training length).")
]
