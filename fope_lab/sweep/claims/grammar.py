"""The text of claims: `[stage.]metric[(corpus)]@x [where axis=value, …]: a > b [> c]`.

A value is written as tables show it, `fope(sigma=0.1)`. A value with a space or one of `,:<>=()"`
outside of its brackets is written in JSON's double quotes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Literal

from fope_lab.config.errors import UserError
from fope_lab.config.problems import shown

FORM = "[stage.]metric[(corpus)]@x [where axis=value, …]: a > b [> c]"
Order = Literal[">", "<"]

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_AXIS = re.compile(r"[A-Za-z0-9_.-]+")
_SPACE = re.compile(r"\s*")
_WHERE = re.compile(r"where\s")
_NUMBER = re.compile(r"[0-9]{1,18}(?![A-Za-z0-9_.])")
_ENDS = frozenset(',:<>=")@')
_JSON = json.JSONDecoder(strict=False)


class ClaimError(UserError):
    """A text is not a claim, or its sweep can't answer the claim."""


@dataclass(frozen=True)
class Quantity:
    """`[stage.]metric[(corpus)]`: the numbers that a claim, a table or a figure is about."""

    metric: str
    stage: str | None = None
    corpus: str | None = None

    def __str__(self) -> str:
        stage = f"{self.stage}." if self.stage else ""
        corpus = "" if self.corpus is None else f"({_written(self.corpus)})"
        return f"{stage}{self.metric}{corpus}"


@dataclass(frozen=True)
class Pin:
    """`axis=value`, or only `value` in a term that leaves the axis open."""

    value: str
    axis: str | None = None

    def __str__(self) -> str:
        axis = "" if self.axis is None else f"{self.axis}="
        return f"{axis}{_written(self.value)}"


@dataclass(frozen=True)
class Claim:
    """The claim that the numbers of `terms` are in a strict `order`, from the first to the last."""

    quantity: Quantity
    x: int | None
    where: tuple[Pin, ...]
    order: Order
    terms: tuple[Pin, ...]

    def __str__(self) -> str:
        at = "" if self.x is None else f"@{self.x}"
        where = f" where {', '.join(map(str, self.where))}" if self.where else ""
        return f"{self.quantity}{at}{where}: {f' {self.order} '.join(map(str, self.terms))}"


def parse_claim(text: str) -> Claim:
    """Return the claim that a text states. Raises ClaimError."""
    if not text.strip():
        raise ClaimError(f"is empty; needs {FORM}")
    reader = _Reader(text)
    quantity = reader.quantity()
    x = reader.number() if reader.skip("@") else None
    where = []
    if reader.match(_WHERE):
        where.append(reader.pin())
        while reader.skip(","):
            where.append(reader.pin())
    if not reader.skip(":"):
        raise reader.wrong("':' and the values to compare")
    terms = [reader.term()]
    orders = []
    while order := reader.skip(">") or reader.skip("<"):
        orders.append(order)
        terms.append(reader.term())
    reader.end("> or <")
    if not orders:
        raise ClaimError(f"compares {shown(str(terms[0]))} with nothing; needs {FORM}")
    if len(set(orders)) > 1:
        raise ClaimError("mixes > and <; a chain needs one of them")
    for i, term in enumerate(terms):
        if term in terms[:i]:
            raise ClaimError(f"names {term} twice")
    return Claim(quantity, x, tuple(where), ">" if orders[0] == ">" else "<", tuple(terms))


def parse_quantity(text: str) -> Quantity:
    """Return the quantity that a text `[stage.]metric[(corpus)]` names. Raises ClaimError."""
    if not text.strip():
        raise ClaimError("is empty; needs [stage.]metric[(corpus)]")
    reader = _Reader(text)
    quantity = reader.quantity()
    reader.end("the end")
    return quantity


class _Reader:
    """Reads a text from left to right; it holds the position reached so far."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def quantity(self) -> Quantity:
        stage, metric = None, self._name("a metric")
        if self.skip("."):
            stage, metric = metric, self._name("a metric")
        corpus = None
        if self.skip("("):
            corpus = self._value()
            if not self.skip(")"):
                raise self.wrong("')' after a corpus")
        return Quantity(metric, stage, corpus)

    def number(self) -> int:
        digits = self.match(_NUMBER)
        if digits is None:
            raise self.wrong("a whole number such as 1024 after @")
        return int(digits)

    def pin(self) -> Pin:
        axis = self.match(_AXIS)
        if axis is None or not self.skip("="):
            raise self.wrong("axis=value after where")
        return Pin(self._value(), axis)

    def term(self) -> Pin:
        before = self._at
        axis = self.match(_AXIS)
        if axis is not None and self.skip("="):
            return Pin(self._value(), axis)
        self._at = before
        return Pin(self._value())

    def skip(self, mark: str) -> str:
        """Return a mark and go past it, if it comes next; the empty string otherwise."""
        self.match(_SPACE)
        if not self._text.startswith(mark, self._at):
            return ""
        self._at += len(mark)
        return mark

    def match(self, pattern: re.Pattern[str]) -> str | None:
        """Return the text that matches a pattern and go past it, if it comes next."""
        if pattern is not _SPACE:
            self.match(_SPACE)
        found = pattern.match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        return found[0]

    def end(self, needed: str) -> None:
        self.match(_SPACE)
        if self._at < len(self._text):
            raise self.wrong(needed)

    def wrong(self, needed: str) -> ClaimError:
        self.match(_SPACE)
        rest = self._text[self._at :]
        found = f"found {shown(rest)}" if rest else "ends"
        before = self._text[: self._at].rstrip()
        return ClaimError(f"{found} after {shown(before)}, needs {needed}")

    def _name(self, what: str) -> str:
        name = self.match(_NAME)
        if name is None:
            raise self.wrong(what)
        return name

    def _value(self) -> str:
        self.match(_SPACE)
        if self._text.startswith('"', self._at):
            try:
                value, self._at = _JSON.raw_decode(self._text, self._at)
            except ValueError:
                raise self.wrong("a closing quote") from None
            return str(value)
        start, depth = self._at, 0
        while self._at < len(self._text):
            mark = self._text[self._at]
            if depth == 0 and (mark in _ENDS or mark.isspace()):
                break
            depth += (mark == "(") - (mark == ")")
            self._at += 1
        if depth:
            self._at = start
            raise self.wrong("a value with a closing bracket")
        if start == self._at:
            raise self.wrong("a value")
        return "".join(self._text[start : self._at].split())


def _written(value: str) -> str:
    """Return a value as a claim writes it, in quotes if it would be read as something else."""
    reader = _Reader(value)
    try:
        plain = reader.term() == Pin(value)
        reader.end("nothing")
    except ClaimError:
        plain = False
    return value if plain else json.dumps(value, ensure_ascii=False)
