"""`rope grows`, `rope falls`: the slope of a model's numbers along an axis."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from fope_lab.statistics.t_test import Side
from fope_lab.sweep.claims.contrast import Contrast
from fope_lab.sweep.claims.operands import Operand
from fope_lab.sweep.claims.reader import Reader
from fope_lab.sweep.claims.statements.along import AlongStatement, Course, read_along

Direction = Literal["grows", "falls"]
SIDES: dict[Direction, Side] = {"grows": "greater", "falls": "less"}


@dataclass(frozen=True)
class Trend(AlongStatement):
    """The least-squares slope of the numbers has a sign.

    The slope is over log₂ of the axis, so that it is the change per doubling, or over the axis
    itself if it has 0 or less. It uses every point, so a single odd one decides less than it does
    in the difference of the ends.
    """

    form: ClassVar[str] = "a grows [with axis]"
    example: ClassVar[str] = "perplexity@512..8192: rope grows"
    tested: ClassVar[str] = (
        "two-sided, whether the mean slope of a over the doublings of x is above 0"
    )
    two_sided: ClassVar[bool] = True
    closed: ClassVar[bool] = False

    direction: Direction

    @classmethod
    def read(cls, subject: Operand, reader: Reader) -> Self | None:
        """Read the statement from its verb on. Raises ClaimError."""
        direction: Direction
        if reader.words("grows"):
            direction = "grows"
        elif reader.words("falls"):
            direction = "falls"
        else:
            return None
        return cls(*read_along(subject, reader), direction)

    def words(self) -> str:
        """The verb of the claim: grows or falls."""
        return self.direction

    def contrasts(self, course: Course) -> tuple[Contrast, ...]:
        """The slope of least squares along the axis."""
        doublings = course.xs[0] > 0
        places = [math.log2(x) for x in course.xs] if doublings else list(course.xs)
        mean = math.fsum(places) / len(places)
        square = math.fsum((place - mean) ** 2 for place in places)
        weights = {i: (place - mean) / square for i, place in enumerate(places)}
        per = f"per doubling of {course.axis}" if doublings else f"per 1 of {course.axis}"
        name = f"slope of {course.name} {per}"
        return (Contrast(name, weights, 0.0, SIDES[self.direction]),)
