"""The text of claims: `[stage.]metric[(corpus)][@x] [where axis=value, …]: statement`.

The forms of a statement are in `statements/`, one per file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fope_lab.config.problems import shown
from fope_lab.sweep.claims.operands import (
    Operand,
    Pin,
    Quantity,
    read_subject,
    refuse_factor_before,
)
from fope_lab.sweep.claims.other_signs import refuse_other_signs
from fope_lab.sweep.claims.reader import ClaimError, Reader
from fope_lab.sweep.claims.statements.base import Span, Statement
from fope_lab.sweep.claims.statements.change_limit import ChangeLimit
from fope_lab.sweep.claims.statements.equivalence import Equivalence
from fope_lab.sweep.claims.statements.no_worse import NoWorse
from fope_lab.sweep.claims.statements.ranking import Ranking
from fope_lab.sweep.claims.statements.trend import Trend

FORMS: tuple[type[Statement], ...] = (NoWorse, Ranking, Equivalence, ChangeLimit, Trend)
"""In the order in which they are read: <= before <, `grows at most` before `grows`."""
FORM = "[stage.]metric[(corpus)]@x [where axis=value, …]: a > b [> c]"
SIGNS = "one of > < >= <= ~ grows falls stays"


@dataclass(frozen=True)
class Claim:
    """A statement about a quantity, `at` a point or some points of its curve."""

    quantity: Quantity
    at: int | Span | None
    where: tuple[Pin, ...]
    statement: Statement

    @property
    def canonical(self) -> Claim:
        """The same claim in the form that all ways to write it share."""
        pins = tuple(sorted(self.where, key=str))
        return replace(self, where=pins, statement=self.statement.canonical)

    def __str__(self) -> str:
        at = "" if self.at is None else f"@{self.at}"
        where = f" where {', '.join(map(str, self.where))}" if self.where else ""
        return f"{self.quantity}{at}{where}: {self.statement}"


def parse_claim(text: str) -> Claim:
    """Return the claim that a text states. Raises ClaimError."""
    if not text.strip():
        raise ClaimError(f"is empty; needs {FORM}")
    refuse_other_signs(text)
    reader = Reader(text)
    quantity = Quantity.read(reader)
    at = _read_points(reader) if reader.skip("@") else None
    where = _read_where(reader)
    if not reader.skip(":"):
        raise reader.wrong("':' and the values to compare")
    subject = read_subject(reader)
    refuse_factor_before(subject, reader)
    statement = _read_statement(subject, reader)
    reader.end(statement.needs_next)
    return Claim(quantity, at, where, statement)


def parse_quantity(text: str) -> Quantity:
    """Return the quantity that a text `[stage.]metric[(corpus)]` names. Raises ClaimError."""
    if not text.strip():
        raise ClaimError("is empty; needs [stage.]metric[(corpus)]")
    reader = Reader(text)
    quantity = Quantity.read(reader)
    reader.end("the end")
    return quantity


def _read_points(reader: Reader) -> int | Span:
    first = reader.point()
    if not reader.skip(".."):
        return first
    last = reader.point()
    if last <= first:
        raise ClaimError(f"@{first}..{last} is no range: the second point is not above the first")
    return Span(first, last)


def _read_where(reader: Reader) -> tuple[Pin, ...]:
    pins: list[Pin] = []
    if not reader.words("where"):
        return ()
    while not pins or reader.skip(","):
        axis = reader.axis()
        if not axis:
            raise reader.wrong("axis=value after where")
        pins.append(Pin(reader.value()[0], axis))
    return tuple(pins)


def _read_statement(subject: Operand, reader: Reader) -> Statement:
    for form in FORMS:
        if (statement := form.read(subject, reader)) is not None:
            return statement
    if isinstance(subject, Pin) and "~" in subject.value:
        raise ClaimError(
            f"found {shown(subject.value)}: a ~ that compares has a space on each side"
        )
    reader.end(SIGNS)
    raise ClaimError(f"compares {shown(str(subject))} with nothing; needs {FORM}")
