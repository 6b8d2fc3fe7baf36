"""`a <= b * 1.01`: one number is no worse than another, within a margin (non-inferiority)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from fope_lab.statistics.t_test import Side
from fope_lab.sweep.claims.contrast import Contrast
from fope_lab.sweep.claims.margins import Reference
from fope_lab.sweep.claims.operands import (
    Operand,
    Pin,
    read_operand,
    refuse_factor_before,
    settle,
    write_operands,
)
from fope_lab.sweep.claims.reader import ClaimError, Reader
from fope_lab.sweep.claims.statements.of_operands import OperandStatement, Place, contrast

Sign = Literal["<=", ">="]
SIDES: dict[Sign, Side] = {"<=": "less", ">=": "greater"}


@dataclass(frozen=True)
class NoWorse(OperandStatement):
    """The first number is at most, or at least, the second one, moved by `margin`.

    Between two models a margin is needed: no number of seeds shows that equal models do not differ.
    A constant, or another number of the same stage, is a limit itself and has no margin.
    """

    form: ClassVar[str] = "a <= b * 1.01"
    example: ClassVar[str] = "passkey@512: fope >= rope - 0.02"
    tested: ClassVar[str] = "one-sided, whether the mean of a − 1.01 · b is below 0"
    two_sided: ClassVar[bool] = False
    closed: ClassVar[bool] = True

    sign: Sign
    margin: Reference

    def __post_init__(self) -> None:
        super().__post_init__()
        between_models = all(isinstance(operand, Pin) for operand in self.operands)
        if between_models and self.margin == Reference():
            a, b = write_operands(self.operands)
            margin = "* 1.01" if self.sign == "<=" else "* 0.99"
            raise ClaimError(
                f"{a} {self.sign} {b} needs a margin, such as {a} {self.sign} {b} {margin}:"
                " no number of seeds shows that equal models do not differ"
            )
        if not between_models and self.margin != Reference():
            raise ClaimError(f"{self}: a margin is for two models; here, write the limit itself")

    @classmethod
    def read(cls, subject: Operand, reader: Reader) -> Self | None:
        """Read the statement from its sign on. Raises ClaimError."""
        sign: Sign
        if reader.skip("<="):
            sign = "<="
        elif reader.skip(">="):
            sign = ">="
        else:
            return None
        second = read_operand(reader)
        operands = settle([subject, second])
        refuse_factor_before(operands[1], reader)
        margin = _read_margin(reader, sign)
        if margin == Reference():
            reader.end("a margin such as * 1.01, + 0.02 or - 0.02, or the end")
        return cls(operands, sign, margin)

    def __str__(self) -> str:
        first, second = write_operands(self.operands)
        return f"{first} {self.sign} {second}{_written(self.margin)}".lstrip()

    @property
    def canonical(self) -> NoWorse:
        """With >=; a factor belongs to the second number, and stays there."""
        if self.sign == ">=" or self.margin.is_ratio:
            return self
        return NoWorse(self.operands[::-1], ">=", Reference(shift=-self.margin.shift))

    @property
    def amount(self) -> float:
        """The margin, if it is no factor."""
        return abs(self.margin.shift)

    def contrasts(self, places: Sequence[Place]) -> tuple[Contrast, ...]:
        """The difference of the first number and the moved second one."""
        first, second = places
        return (contrast(first, second, self.margin, SIDES[self.sign]),)


def _read_margin(reader: Reader, sign: Sign) -> Reference:
    """The margin after the second operand, if there is one, which leaves room on the right side."""
    for written in ("*", "+", "-", "−"):
        if not reader.skip(written):
            continue
        mark = written.replace("−", "-")
        amount = reader.number(f"a number such as {'1.01' if mark == '*' else '0.02'} after {mark}")
        if reader.skip("%"):
            share = f"* {1.01 if sign == '<=' else 0.99}"
            raise ClaimError(f"{mark} {amount:g}%: a margin of 1% is written {share}")
        if mark == "*":
            margin = Reference(amount)
            right = amount > 1 if sign == "<=" else 0 < amount < 1
            needs = "more than 1" if sign == "<=" else "between 0 and 1"
        else:
            margin = Reference(1.0, amount if mark == "+" else -amount)
            right = amount > 0 and mark == ("+" if sign == "<=" else "-")
            needs = f"{'+' if sign == '<=' else '-'} and a number more than 0"
        if not right:
            what = "a factor" if mark == "*" else "a margin"
            raise ClaimError(
                f"{mark} {amount:g} is no margin of {sign}: {what} that leaves room is {needs}"
            )
        return margin
    return Reference()


def _written(margin: Reference) -> str:
    if margin.is_ratio:
        return f" * {margin.factor!r}"
    if margin.shift:
        return f" {'+' if margin.shift > 0 else '-'} {abs(margin.shift)!r}"
    return ""
