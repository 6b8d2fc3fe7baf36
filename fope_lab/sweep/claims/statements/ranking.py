"""`a > b [> c]`: the numbers are in a strict order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal, Self

from fope_lab.statistics.t_test import Side
from fope_lab.sweep.claims.contrast import Contrast
from fope_lab.sweep.claims.margins import Reference
from fope_lab.sweep.claims.operands import Operand, read_operand, settle, write_operands
from fope_lab.sweep.claims.reader import ClaimError, Reader
from fope_lab.sweep.claims.statements.of_operands import OperandStatement, Place, contrast

Order = Literal[">", "<"]
SIDES: dict[Order, Side] = {">": "greater", "<": "less"}


@dataclass(frozen=True)
class Ranking(OperandStatement):
    """The numbers of `operands` are in a strict `order`, from the first to the last."""

    needs_next: ClassVar[str] = "> or <"
    form: ClassVar[str] = "a > b [> c]"
    example: ClassVar[str] = "perplexity@512: fope < rope"
    tested: ClassVar[str] = "two-sided, whether the mean of a − b is above 0"
    two_sided: ClassVar[bool] = True
    closed: ClassVar[bool] = False

    order: Order

    @classmethod
    def read(cls, subject: Operand, reader: Reader) -> Self | None:
        """Read the chain from its first sign on. Raises ClaimError."""
        operands, orders = [subject], []
        while order := reader.skip(">") or reader.skip("<"):
            orders.append(order)
            operands.append(read_operand(reader))
        if not orders:
            return None
        if mark := next(filter(None, map(reader.skip, "*+-−")), None):
            raise ClaimError(f"found {mark} after a > or <: a margin goes with >= or <=")
        if len(set(orders)) > 1:
            raise ClaimError("mixes > and <; a chain needs one of them")
        return cls(settle(operands), ">" if orders[0] == ">" else "<")

    def __str__(self) -> str:
        return f" {self.order} ".join(write_operands(self.operands)).lstrip()

    @property
    def canonical(self) -> Ranking:
        """The chain from the largest number to the smallest."""
        if self.order == ">":
            return self
        return Ranking(self.operands[::-1], ">")

    def contrasts(self, places: Sequence[Place]) -> tuple[Contrast, ...]:
        """The difference of each two neighbours."""
        side = SIDES[self.order]
        return tuple(contrast(a, b, Reference(), side) for a, b in pairwise(places))
