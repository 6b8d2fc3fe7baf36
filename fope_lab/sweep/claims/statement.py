"""What a claim says: a statement about a quantity.

A statement has a verb: a sign between operands, or a word for what a number does along an axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from fope_lab.config.problems import UserError
from fope_lab.statistics.decision import Side

VERBS: Mapping[str, tuple[Side, ...]] = {
    "<=": ("less",),
    ">=": ("greater",),
    ">": ("greater",),
    "<": ("less",),
    "~": ("greater", "less"),
    "grows": ("greater",),
    "falls": ("less",),
    "grows at most": ("less",),
    "falls at most": ("greater",),
    "stays within": ("greater", "less"),
}
"""On which sides of a limit the compared differences are, by what a claim says of them."""
TWO_SIDED = frozenset({">", "<", "grows", "falls"})
ALONG = frozenset({"grows", "falls", "grows at most", "falls at most", "stays within"})
"""Verbs of one model along an axis; the others compare operands at one point."""


class ClaimError(UserError):
    """A text is not a claim, or its sweep can't answer the claim."""


@dataclass(frozen=True)
class Quantity:
    """`[stage.]metric[(corpus)]`: the numbers that a claim, a table or a figure is about."""

    metric: str
    stage: str | None = None
    corpus: str | None = None

    def __str__(self) -> str:
        corpus = "" if self.corpus is None else f"({self.corpus})"
        return f"{self.stage}.{self.metric}{corpus}" if self.stage else f"{self.metric}{corpus}"


@dataclass(frozen=True)
class PointRange:
    """The points of a curve from `first` to `last`, both included."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}..{self.last}"


@dataclass(frozen=True)
class Pin:
    """`axis=value`, or only `value` in a term that leaves the axis open."""

    value: str
    axis: str | None = None

    def __str__(self) -> str:
        return self.value if self.axis is None else f"{self.axis}={self.value}"


@dataclass(frozen=True)
class Constant:
    """A number that the models' numbers are compared with; `text` is how the claim wrote it."""

    value: float
    text: str = field(default="", compare=False)

    def __str__(self) -> str:
        return _number_text(self.value)


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


@dataclass(frozen=True)
class Margin:
    """How much worse, or how far apart, two numbers may be: a factor, a percentage or an amount."""

    amount: float
    unit: Literal["*", "%", ""] = ""

    def limit(self, side: Side) -> tuple[float, float]:
        """Return the factor and the shift of a number that give the limit on this side of it."""
        signed = self.amount if side == "less" else -self.amount
        if self.unit == "*":
            return self.amount, 0.0
        return (1 + signed / 100, 0.0) if self.unit == "%" else (1.0, signed)

    def __str__(self) -> str:
        return f"{_number_text(self.amount)}{'%' * (self.unit == '%')}"


@dataclass(frozen=True)
class Statement:
    """What a claim says after its colon; each difference is on the VERBS side of its limit.

    `operands` are compared in their order; a verb of ALONG has one. `along` is the axis of the grid
    that it runs along, None for that of the curve. Raises ClaimError for what can't be compared.
    """

    operands: tuple[Operand, ...]
    verb: str
    margin: Margin | None = None
    along: str | None = None

    def __post_init__(self) -> None:
        for i, operand in enumerate(self.operands):
            if operand in self.operands[:i]:
                raise ClaimError(f"names {operand} twice")
        between_models = all(isinstance(operand, Pin) for operand in self.operands)
        if self.verb in ("<=", ">=") and between_models and self.margin is None:
            margin = "* 1.01" if self.verb == "<=" else "* 0.99"
            raise ClaimError(
                f"{self} needs a margin, such as {self} {margin}:"
                " no number of seeds shows that equal models do not differ"
            )
        if self.verb in ("<=", ">=") and not between_models and self.margin is not None:
            raise ClaimError(f"{self}: a margin is for two models; here, write the limit itself")
        limit = self.operands[-1]
        if self.has_share and isinstance(limit, Constant) and limit.value <= 0:
            raise ClaimError(f"{self}: a share of {limit} is no margin; write an amount")

    @property
    def has_share(self) -> bool:
        """Whether the margin is a share of the last operand."""
        return self.margin is not None and self.margin.unit != ""

    @property
    def two_sided(self) -> bool:
        """Whether neither verdict is right where a difference is exactly its limit, as for a > b
        between equal models. Each side then has half of the error rate."""
        return self.verb in TWO_SIDED

    @property
    def words(self) -> str:
        """The verb with its margin: `stays within 5%`."""
        return f"{self.verb} {self.margin}" if self.margin else self.verb

    @property
    def canonical(self) -> Statement:
        """The same statement in the form that all ways to write it share."""
        if self.has_share:  # it belongs to the last operand
            return self
        if self.verb == "~":
            return replace(self, operands=tuple(sorted(self.operands, key=str)))
        if self.verb in ("<", "<="):
            return replace(self, operands=self.operands[::-1], verb=self.verb.replace("<", ">"))
        return self

    def __str__(self) -> str:
        operands = [str(operand) for operand in self.operands]
        if self.verb in ALONG:
            axis = "" if self.along is None else f"with {self.along}"
            return " ".join(filter(None, [operands[0], self.words, axis]))
        text = f" {self.verb} ".join(operands).lstrip()
        if self.margin is None:
            return text
        sign = "within" if self.verb == "~" else self.margin.unit or "-+"[self.verb == "<="]
        return f"{text} {sign} {self.margin}"


@dataclass(frozen=True)
class Claim:
    """A statement about a quantity, `at` a point or some points of its curve."""

    quantity: Quantity
    at: int | PointRange | None
    where: tuple[Pin, ...]
    statement: Statement

    @property
    def canonical(self) -> Claim:
        """The same claim in the form that all ways to write it share."""
        pins = tuple(sorted(self.where, key=str))
        return replace(self, where=pins, statement=self.statement.canonical)


def _number_text(value: float) -> str:
    return f"{value!r}".removesuffix(".0")
