"""What a claim compares: values of an axis, constants, numbers of one stage, and a quantity itself.

A value of an axis is written as tables show it, `fope(sigma=0.1)`. A value with a space or one of
`,:<>=()"*` outside of its brackets is written in JSON's double quotes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from fope_lab.sweep.claims.other_signs import other_sign
from fope_lab.sweep.claims.reader import NUMBER, ClaimError, Reader, is_number, quoted

SIGNS = re.compile(r"[<>]|~(?=\s|$)|(?:grows|falls|stays)(?=\s|$)")
"""What a statement begins with, after what it says something about."""


@dataclass(frozen=True)
class Quantity:
    """`[stage.]metric[(corpus)]`: the numbers that a claim, a table or a figure is about."""

    metric: str
    stage: str | None = None
    corpus: str | None = None

    def __str__(self) -> str:
        stage = f"{self.stage}." if self.stage else ""
        corpus = "" if self.corpus is None else f"({written(self.corpus)})"
        return f"{stage}{self.metric}{corpus}"

    @staticmethod
    def read(reader: Reader) -> Quantity:
        """Read a quantity. Raises ClaimError."""
        stage, metric = None, reader.name("a metric")
        if reader.skip("."):
            stage, metric = metric, reader.name("a metric")
        corpus = None
        if reader.skip("("):
            corpus, _ = reader.value()
            if not reader.skip(")"):
                raise reader.wrong("')' after a corpus")
        return Quantity(metric, stage, corpus)


@dataclass(frozen=True)
class Pin:
    """`axis=value`, or only `value` in a term that leaves the axis open."""

    value: str
    axis: str | None = None

    def __str__(self) -> str:
        axis = "" if self.axis is None else f"{self.axis}="
        return f"{axis}{written(self.value)}"


@dataclass(frozen=True)
class Constant:
    """A number that the models' numbers are compared with; `text` is how the claim wrote it."""

    value: float
    text: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.value!r}".removesuffix(".0")


@dataclass(frozen=True)
class OtherNumber:
    """Another number of the same stage, such as the bound of a measured number."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Itself:
    """The quantity that the claim is about, without a value of an axis."""

    def __str__(self) -> str:
        return ""


Operand = Pin | Constant | OtherNumber | Itself


def read_operand(reader: Reader) -> Pin | Constant:
    """Read a value of an axis, or a number that may be a constant. Raises ClaimError."""
    axis = reader.axis()
    value, in_quotes = reader.value()
    if axis or in_quotes or not is_number(number := value.removesuffix("%")):
        return Pin(value, axis or None)
    constant = Constant(Reader(number).number("a number"), number)
    if number != value or reader.skip("%"):
        share = f"{constant.value / 100:g}"
        raise ClaimError(f"found {number}%, needs a number such as {share}; % is for margins")
    return constant


def read_subject(reader: Reader) -> Operand:
    """Read what stands before the sign of a statement, which may be nothing."""
    return Itself() if reader.comes(SIGNS) else read_operand(reader)


def refuse_factor_before(operand: Operand, reader: Reader) -> None:
    """Raise ClaimError if a number is multiplied, as in 1.01 * rope."""
    if isinstance(operand, Constant) and reader.skip("*"):
        if reader.comes(NUMBER):
            raise ClaimError(f"multiplies {operand}: a margin is for two models")
        raise ClaimError(f"found {operand} before a *: a factor comes last, as in b * {operand}")


def settle(operands: Sequence[Operand]) -> tuple[Operand, ...]:
    """Decide what bare numbers and names are, from what they stand beside.

    A number is a constant beside a name, `fope > 0.9`, and a value of an axis beside another
    number, `128 > 256`. Where the quantity itself is compared, a name is another number of its
    stage. Raises ClaimError for a value of an axis there.
    """
    if any(isinstance(operand, Itself) for operand in operands):
        return tuple(map(_other_number, operands))
    if any(isinstance(one, Pin) and not is_number(one.value) for one in operands):
        return tuple(operands)
    return tuple(Pin(one.text) if isinstance(one, Constant) else one for one in operands)


def write_operands(operands: Sequence[Operand]) -> list[str]:
    """Write operands so that they are read as the same: a number that is a value in quotes, if it
    would be read as a constant."""
    named = any(isinstance(one, Pin) and not is_number(one.value) for one in operands)
    return [
        quoted(one.value)
        if named and isinstance(one, Pin) and one.axis is None and is_number(one.value)
        else str(one)
        for one in operands
    ]


def written(value: str) -> str:
    """Return a value as a claim writes it, in quotes if it would be read as something else."""
    reader = Reader(value)
    try:
        operand = read_subject(reader)
        reader.end("nothing")
    except ClaimError:
        return quoted(value)
    if other_sign(value):
        return quoted(value)
    plain = Pin(operand.text) if isinstance(operand, Constant) else operand
    return value if plain == Pin(value) else quoted(value)


def _other_number(operand: Operand) -> Operand:
    if not isinstance(operand, Pin):
        return operand
    if operand.axis is not None:
        raise ClaimError(
            f"compares {operand} with no other value; write one before the sign, or pin it by"
            " `where`"
        )
    return OtherNumber(operand.value)
