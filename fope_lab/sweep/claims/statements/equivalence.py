"""`a ~ b within 1%`: two numbers are the same but for a margin either way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from fope_lab.sweep.claims.contrast import Contrast
from fope_lab.sweep.claims.margins import Tolerance
from fope_lab.sweep.claims.operands import (
    Constant,
    Operand,
    read_operand,
    refuse_factor_before,
    settle,
    write_operands,
)
from fope_lab.sweep.claims.reader import ClaimError, Reader
from fope_lab.sweep.claims.statements.of_operands import OperandStatement, Place, contrast


@dataclass(frozen=True)
class Equivalence(OperandStatement):
    """The first number is the second one within a tolerance.

    Two one-sided tests, each at α (Schuirmann 1987).
    """

    form: ClassVar[str] = "a ~ b within 1%"
    example: ClassVar[str] = "perplexity@64: fope ~ rope within 1%"
    tested: ClassVar[str] = (
        "two one-sided tests, whether the mean of a − 0.99 · b is above 0 and that of a − 1.01 · b"
        " below 0"
    )
    two_sided: ClassVar[bool] = False
    closed: ClassVar[bool] = True

    within: Tolerance

    def __post_init__(self) -> None:
        super().__post_init__()
        limit = self.operands[1]
        if self.within.percent and isinstance(limit, Constant) and limit.value <= 0:
            raise ClaimError(f"{self}: a share of {limit} is no margin; write an amount")

    @classmethod
    def read(cls, subject: Operand, reader: Reader) -> Self | None:
        """Read the statement from its sign on. Raises ClaimError."""
        if not reader.skip("~"):
            return None
        second = read_operand(reader)
        refuse_factor_before(second, reader)
        operands = settle([subject, second])
        if not reader.words("within"):
            a, b = write_operands(operands)
            raise ClaimError(f"{a} ~ {b} needs a margin, such as {a} ~ {b} within 1%".lstrip())
        return cls(operands, Tolerance.read(reader, "within", below_all=True))

    def __str__(self) -> str:
        first, second = write_operands(self.operands)
        return f"{first} ~ {second} within {self.within}".lstrip()

    @property
    def canonical(self) -> Equivalence:
        """With the operands in the order of their names, between which an amount does not tell."""
        if self.within.percent:
            return self
        return Equivalence(tuple(sorted(self.operands, key=str)), self.within)

    @property
    def amount(self) -> float:
        """The margin, if it is no share."""
        return 0.0 if self.within.percent else self.within.amount

    def contrasts(self, places: Sequence[Place]) -> tuple[Contrast, ...]:
        """The difference to both limits."""
        first, second = places
        return (
            contrast(first, second, self.within.below, "greater"),
            contrast(first, second, self.within.above, "less"),
        )
