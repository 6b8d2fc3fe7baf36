"""`alibi grows at most 5%`, `fope stays within 5%`: limits of how much a model's numbers change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from fope_lab.statistics.t_test import Side
from fope_lab.sweep.claims.contrast import Contrast
from fope_lab.sweep.claims.margins import Reference, Tolerance
from fope_lab.sweep.claims.operands import Operand
from fope_lab.sweep.claims.reader import Reader
from fope_lab.sweep.claims.statements.along import AlongStatement, Course, read_along
from fope_lab.sweep.claims.statements.of_operands import Place, contrast

Change = Literal["grows at most", "falls at most", "stays within"]
SIDES: dict[Change, tuple[Side, ...]] = {
    "grows at most": ("less",),
    "falls at most": ("greater",),
    "stays within": ("greater", "less"),
}


@dataclass(frozen=True)
class ChangeLimit(AlongStatement):
    """No number along the axis is further from the first one than a limit.

    Every later point is tested against the first, so that a rise in between is seen.
    """

    form: ClassVar[str] = "a grows at most 5% [with axis]"
    example: ClassVar[str] = "perplexity@128..1024: alibi grows at most 5%"
    tested: ClassVar[str] = (
        "one-sided, for each later point, whether its mean − 1.05 · the first point is below 0; for"
        " `stays within`, two one-sided tests for each"
    )
    two_sided: ClassVar[bool] = False
    closed: ClassVar[bool] = True

    change: Change
    limit: Tolerance

    @classmethod
    def read(cls, subject: Operand, reader: Reader) -> Self | None:
        """Read the statement from its verb on. Raises ClaimError."""
        for change in SIDES:
            if reader.words(*change.split()):
                limit = Tolerance.read(reader, change, below_all=change != "grows at most")
                subject, along = read_along(subject, reader)
                return cls(subject, along, change, limit)
        if reader.words("stays"):
            raise reader.wrong("'within' and a margin, as in 'stays within 5%'")
        return None

    @property
    def amount(self) -> float:
        """The limit, if it is no share."""
        return 0.0 if self.limit.percent else self.limit.amount

    def words(self) -> str:
        """The limit of the change."""
        return f"{self.change} {self.limit}"

    def contrasts(self, course: Course) -> tuple[Contrast, ...]:
        """The difference of every later number to each limit."""
        first, *later = (Place(name, i) for i, name in enumerate(course.names))
        limits: dict[Side, Reference] = {"greater": self.limit.below, "less": self.limit.above}
        return tuple(
            contrast(place, first, limits[side], side)
            for place in later
            for side in SIDES[self.change]
        )
