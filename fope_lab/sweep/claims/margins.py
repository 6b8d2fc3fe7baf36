"""Margins: how much worse, or how far apart, two models may be for a claim about them to hold."""

from __future__ import annotations

from dataclasses import dataclass

from fope_lab.sweep.claims.reader import ClaimError, Reader


@dataclass(frozen=True)
class Reference:
    """`factor` × a number + `shift`: what another number is compared with."""

    factor: float = 1.0
    shift: float = 0.0

    @property
    def is_ratio(self) -> bool:
        """Whether the margin is a share of the number, which must then be positive."""
        return self.factor != 1.0


@dataclass(frozen=True)
class Tolerance:
    """`amount`, or so many per cent of what is compared with."""

    amount: float
    percent: bool

    def __str__(self) -> str:
        return f"{self.amount!r}".removesuffix(".0") + "%" * self.percent

    @property
    def above(self) -> Reference:
        """The upper limit of what counts as equal."""
        return Reference(1 + self.amount / 100) if self.percent else Reference(1.0, self.amount)

    @property
    def below(self) -> Reference:
        """The lower limit of what counts as equal."""
        return Reference(1 - self.amount / 100) if self.percent else Reference(1.0, -self.amount)

    @staticmethod
    def read(reader: Reader, after: str, *, below_all: bool) -> Tolerance:
        """Read `1%` or `0.02`. Raises ClaimError if it is no margin.

        `after` is the word before it. `below_all` says that a fall by 100 % is no limit.
        """
        amount = reader.number(f"a margin such as 1% or 0.02 after '{after}'")
        tolerance = Tolerance(amount, bool(reader.skip("%")))
        if amount <= 0:
            raise ClaimError(f"{after} {tolerance}: a margin is more than 0")
        share = 1 + amount / 100 if tolerance.percent else 2.0
        if share == 1:
            raise ClaimError(f"{after} {tolerance}: a margin is more than 0")
        if below_all and tolerance.percent and amount >= 100:
            raise ClaimError(f"{after} {tolerance}: a margin below a number is less than 100%")
        return tolerance
