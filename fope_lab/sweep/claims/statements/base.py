"""What all forms of a claim have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from fope_lab.stages.metric import Metric
from fope_lab.sweep.claims.contrast import Combination
from fope_lab.sweep.claims.operands import Operand, Pin
from fope_lab.sweep.claims.reader import ClaimError, Reader
from fope_lab.sweep.claims.selection import Selected


@dataclass(frozen=True)
class Span:
    """The points of a curve from `first` to `last`, both included."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}..{self.last}"


@dataclass(frozen=True)
class Scope:
    """What a statement is about: where the numbers are, before the claim's colon."""

    selected: Selected
    at: int | Span | None
    where: tuple[Pin, ...]


@dataclass(frozen=True)
class Statement(ABC):
    """What a claim says, after its colon.

    A claim becomes contrasts, and a test over seeds asks for each of them on which side it is.
    The claim holds if each is significantly on the claimed side, and fails if one is significantly
    on the other side.
    """

    needs_next: ClassVar[str] = "the end"
    """What may follow the statement, for the error about what does."""
    form: ClassVar[str]
    """How the statement is written in a claim."""
    example: ClassVar[str]
    tested: ClassVar[str]
    """What is tested, in words for people."""
    two_sided: ClassVar[bool]
    """Whether neither verdict is right where a contrast is exactly its null, as for a > b between
    equal models. Each side then has half of the error rate."""
    closed: ClassVar[bool]
    """Whether the statement is true of numbers without seeds where a contrast is its null."""

    @classmethod
    @abstractmethod
    def read(cls, subject: Operand, reader: Reader) -> Self | None:
        """Read the statement from its sign on; None if another form's sign comes next.

        Raises ClaimError.
        """

    @abstractmethod
    def __str__(self) -> str:
        """The text that is read as this statement."""

    @property
    def amount(self) -> float:
        """How far apart two numbers may be, in the unit of the metric; 0 without such a margin."""
        return 0.0

    def check_amount(self, metric: Metric) -> None:
        """Raise ClaimError if the margin is one that every number of the metric is within."""
        if metric.is_fraction and self.amount >= 1:
            raise ClaimError(
                f"{self}: {self.amount:g} is no margin of {metric.short_name}, which is between 0"
                " and 1; 5 points are 0.05"
            )

    @property
    def canonical(self) -> Statement:
        """The same statement in the form that all ways to write it share."""
        return self

    @abstractmethod
    def compare(self, scope: Scope) -> Sequence[Combination]:
        """What is compared in a sweep, for each combination of the axes that are left open.

        Raises ClaimError if the sweep can't answer the claim.
        """
