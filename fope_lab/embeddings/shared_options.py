"""Options that several frequency transforms have, with their meaning."""

from __future__ import annotations

from typing import Annotated

from fope_lab.config.annotations import Doc, Interval

Factor = Annotated[
    float, Interval(ge=1, le=1e6), Doc("how many times longer the context is than the original, s")
]
OriginalLength = Annotated[
    int, Interval(ge=1), Doc("the original length in tokens, if it is not the training length")
]
