"""The grammar of claims: `[stage.]metric[(corpus)][@x] [where axis=value, …]: statement`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence

from fope_lab.config.problems import shown
from fope_lab.sweep.claims.statement import (
    ALONG,
    TWO_SIDED,
    Claim,
    ClaimError,
    Constant,
    Itself,
    Margin,
    Operand,
    OtherNumber,
    Pin,
    PointRange,
    Quantity,
    Statement,
)

FORM = "[stage.]metric[(corpus)]@x [where axis=value, …]: a > b [> c]"
_NAME = r"[A-Za-z0-9_-]+"
_AXIS = r"[A-Za-z0-9_.-]+"
_AXIS_IS = rf"{_AXIS}\s*=(?![=<>]|~(?:\s|$))"
_POINT = r"[0-9]{1,18}(?![A-Za-z0-9_]|\.(?!\.))"
_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NUMBER_ENDS = rf"{_NUMBER}(?![^ %\n\t])"
_WORD_ENDS = r"(?![A-Za-z0-9_.(=-])"
_VERB = rf"<=|>=|<|>|~|(?:(?:grows|falls)\s+at\s+most|stays\s+within|grows|falls){_WORD_ENDS}"
_NO_SUBJECT = r"[<>]|~(?=\s|$)|(?:grows|falls|stays)(?=\s|$)"
_MARGIN_SIGN = r"[*+−-]"
_VALUE_ENDS = frozenset(',:<>=")@*')
_JSON = json.JSONDecoder(strict=False)

_EQUAL = "~ and a margin, as in a ~ b within 1%"
_OTHER_SIGNS = {  # of other languages, and what a claim has for them
    "==": f"{_EQUAL}, or axis=value",
    **dict.fromkeys(("~=", "=~", "≈", "≃"), _EQUAL),
    **dict.fromkeys(("!=", "≠", "<>"), "> or <"),
    **dict.fromkeys(("≤", "=<"), "<="),
    **dict.fromkeys(("≥", "=>"), ">="),
}
_OTHER_SIGN = "|".join(_OTHER_SIGNS).replace("=~", r"=~(?=\s)")  # not that of axis=~/folder
_QUOTED = r'"(?:\\.|[^"\\])*"'
_BRACKETS = r"\([^()]*\)"


def parse_claim(text: str) -> Claim:
    """Return the claim that a text states. Raises ClaimError."""
    if not text.strip():
        raise ClaimError(f"is empty; needs {FORM}")
    _refuse_other_signs(text)
    reader = _Reader(text)
    quantity = _read_quantity(reader)
    at = _read_points(reader) if reader.take("@") else None
    where = _read_where(reader)
    reader.need(":", "':' and the values to compare")
    return Claim(quantity, at, where, _read_statement(reader))


def parse_quantity(text: str) -> Quantity:
    """Return the quantity that a text `[stage.]metric[(corpus)]` names. Raises ClaimError."""
    if not text.strip():
        raise ClaimError("is empty; needs [stage.]metric[(corpus)]")
    reader = _Reader(text)
    quantity = _read_quantity(reader)
    reader.end("the end")
    return quantity


class _Reader:
    """Read a text from left to right, over the spaces in between. Patterns match no empty text."""

    def __init__(self, text: str) -> None:
        self._text, self._rest = text, text.lstrip()

    def comes(self, pattern: str) -> bool:
        return re.match(pattern, self._rest) is not None

    def take(self, pattern: str) -> str:
        """Return what matches and go past it; the empty string if it does not come next."""
        match = re.match(pattern, self._rest)
        return self._past(match.end()) if match else ""

    def word(self, word: str) -> bool:
        return bool(self.take(word + _WORD_ENDS))

    def need(self, pattern: str, what: str) -> str:
        """Return what matches and go past it. Raises ClaimError."""
        if taken := self.take(pattern):
            return taken
        raise self.wrong(what)

    def number(self, what: str) -> float:
        return _finite(self.need(_NUMBER_ENDS, what))

    def value(self) -> tuple[str, bool]:
        """Return the value that comes next, without spaces, and whether it stands in quotes."""
        if self.comes('"'):
            try:
                value, end = _JSON.raw_decode(self._rest)
            except ValueError:
                raise self.wrong("a closing quote") from None
            self._past(end)
            return str(value), True
        depth = end = 0
        while (mark := self._rest[end : end + 1]) and (
            depth or not (mark in _VALUE_ENDS or mark.isspace())
        ):
            depth += (mark == "(") - (mark == ")")
            end += 1
        if depth or not end:
            raise self.wrong("a value with a closing bracket" if depth else "a value")
        return "".join(self._past(end).split()), False

    def end(self, needed: str) -> None:
        """Raise ClaimError if anything is left, saying what would have been needed."""
        if self._rest:
            raise self.wrong(needed)

    def wrong(self, needed: str) -> ClaimError:
        found = f"found {shown(self._rest)}" if self._rest else "ends"
        before = self._text[: len(self._text) - len(self._rest)].rstrip()
        return ClaimError(f"{found} after {shown(before)}, needs {needed}")

    def _past(self, end: int) -> str:
        taken, self._rest = self._rest[:end], self._rest[end:].lstrip()
        return taken


def _refuse_other_signs(text: str) -> None:
    plain = re.sub(_QUOTED, "", text)
    while (without := re.sub(_BRACKETS, "", plain)) != plain:
        plain = without
    if sign := re.search(_OTHER_SIGN, plain):
        raise ClaimError(f"found {sign[0]} where a claim has {_OTHER_SIGNS[sign[0]]}")


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ClaimError(f"{text} is too large for a number")
    return number


def _is_number(text: str) -> bool:
    return re.fullmatch(_NUMBER, text) is not None


def _read_quantity(reader: _Reader) -> Quantity:
    stage, metric = None, reader.need(_NAME, "a metric")
    if reader.take(r"\."):
        stage, metric = metric, reader.need(_NAME, "a metric")
    corpus = None
    if reader.take(r"\("):
        corpus, _ = reader.value()
        reader.need(r"\)", "')' after a corpus")
    return Quantity(metric, stage, corpus)


def _read_points(reader: _Reader) -> int | PointRange:
    what = "a whole number such as 1024 after @"
    first = int(reader.need(_POINT, what))
    if not reader.take(r"\.\."):
        return first
    last = int(reader.need(_POINT, what))
    if last <= first:
        raise ClaimError(f"@{first}..{last} is no range: the second point is not above the first")
    return PointRange(first, last)


def _read_where(reader: _Reader) -> tuple[Pin, ...]:
    pins: list[Pin] = []
    if not reader.word("where"):
        return ()
    while not pins or reader.take(","):
        if not (axis := _read_axis(reader)):
            raise reader.wrong("axis=value after where")
        pins.append(Pin(reader.value()[0], axis))
    return tuple(pins)


def _read_axis(reader: _Reader) -> str:
    return reader.take(_AXIS_IS).removesuffix("=").rstrip()


def _read_operand(reader: _Reader) -> Pin | Constant:
    """Read a value of an axis, or a number that may be a constant. Raises ClaimError."""
    axis = _read_axis(reader)
    value, in_quotes = reader.value()
    number = value.removesuffix("%")
    if axis or in_quotes or not _is_number(number):
        return Pin(value, axis or None)
    constant = Constant(_finite(number), number)
    if number != value or reader.take("%"):
        share = f"{constant.value / 100:g}"
        raise ClaimError(f"found {number}%, needs a number such as {share}; % is for margins")
    return constant


def _settle(operands: Sequence[Operand]) -> tuple[Operand, ...]:
    """Decide what bare numbers and names are. Raises ClaimError.

    A number is a constant beside a name, `fope > 0.9`, and a value of an axis beside another
    number, `128 > 256`. Beside the quantity itself, a name is another number of its stage.
    """
    if any(isinstance(operand, Itself) for operand in operands):
        for pin in operands:
            if isinstance(pin, Pin) and pin.axis is not None:
                raise ClaimError(
                    f"compares {pin} with no other value; write one before the sign, or pin it by"
                    " `where`"
                )
        return tuple(OtherNumber(one.value) if isinstance(one, Pin) else one for one in operands)
    if any(isinstance(one, Pin) and not _is_number(one.value) for one in operands):
        return tuple(operands)
    return tuple(Pin(one.text) if isinstance(one, Constant) else one for one in operands)


def _read_statement(reader: _Reader) -> Statement:
    subject: Operand = Itself() if reader.comes(_NO_SUBJECT) else _read_operand(reader)
    _refuse_factor_before(subject, reader)
    verb = " ".join(reader.take(_VERB).split())
    if not verb:
        raise _no_verb(subject, reader)
    margin, along, needed = None, None, "the end"
    if verb in ALONG:
        operands = _settle([subject])
        if verb not in TWO_SIDED:
            margin = _read_margin(reader, verb, below_all=verb != "grows at most")
        if reader.word("with"):
            along = reader.need(_AXIS, "an axis after 'with'")
        needed = "'with' and an axis, or the end"
    elif verb in TWO_SIDED:
        operands, needed = _settle(_read_chain(subject, verb, reader)), "> or <"
    else:
        operands = _settle([subject, _read_operand(reader)])
        _refuse_factor_before(operands[1], reader)
        if verb == "~":
            if not reader.word("within"):
                text = f"{operands[0]} ~ {operands[1]}"
                raise ClaimError(f"{text} needs a margin, such as {text} within 1%".lstrip())
            margin = _read_margin(reader, "within", below_all=True)
        elif reader.comes(_MARGIN_SIGN):
            margin = _read_bound_margin(reader, verb)
        else:
            needed = "a margin such as * 1.01, + 0.02 or - 0.02, or the end"
    reader.end(needed)
    return Statement(operands, verb, margin, along)


def _refuse_factor_before(operand: Operand, reader: _Reader) -> None:
    """Raise ClaimError if a number is multiplied, as in 1.01 * rope."""
    if isinstance(operand, Constant) and reader.take(r"\*"):
        if reader.comes(_NUMBER):
            raise ClaimError(f"multiplies {operand}: a margin is for two models")
        raise ClaimError(f"found {operand} before a *: a factor comes last, as in b * {operand}")


def _no_verb(subject: Operand, reader: _Reader) -> ClaimError:
    if reader.word("stays"):
        return reader.wrong("'within' and a margin, as in 'stays within 5%'")
    if isinstance(subject, Pin) and "~" in subject.value:
        return ClaimError(
            f"found {shown(subject.value)}: a ~ that compares has a space on each side"
        )
    reader.end("one of > < >= <= ~ grows falls stays")
    return ClaimError(f"compares {shown(str(subject))} with nothing; needs {FORM}")


def _read_chain(subject: Operand, verb: str, reader: _Reader) -> list[Operand]:
    operands, signs = [subject, _read_operand(reader)], {verb}
    while sign := reader.take("[<>]"):
        signs.add(sign)
        operands.append(_read_operand(reader))
    if mark := reader.take(_MARGIN_SIGN):
        raise ClaimError(f"found {mark} after a > or <: a margin goes with >= or <=")
    if len(signs) > 1:
        raise ClaimError("mixes > and <; a chain needs one of them")
    return operands


def _read_bound_margin(reader: _Reader, verb: str) -> Margin:
    """Read `* 1.01`, `+ 0.02` or `- 0.02`, which must leave room on the right side."""
    below = verb == "<="
    mark = reader.take(_MARGIN_SIGN).replace("−", "-")
    amount = reader.number(f"a number such as {'1.01' if mark == '*' else '0.02'} after {mark}")
    if reader.take("%"):
        share = f"* {1.01 if below else 0.99}"
        raise ClaimError(f"{mark} {amount:g}%: a margin of 1% is written {share}")
    if mark == "*":
        what, needs = "a factor", "more than 1" if below else "between 0 and 1"
        right = amount > 1 if below else 0 < amount < 1
    else:
        sign = "+" if below else "-"
        what, needs = "a margin", f"{sign} and a number more than 0"
        right = amount > 0 and mark == sign
    if not right:
        raise ClaimError(
            f"{mark} {amount:g} is no margin of {verb}: {what} that leaves room is {needs}"
        )
    return Margin(amount, "*" if mark == "*" else "")


def _read_margin(reader: _Reader, after: str, *, below_all: bool) -> Margin:
    """Read `1%` or `0.02`; `below_all` says that a fall by 100 % is no limit."""
    amount = reader.number(f"a margin such as 1% or 0.02 after '{after}'")
    margin = Margin(amount, "%" if reader.take("%") else "")
    if amount <= 0 or (margin.unit and 1 + amount / 100 == 1):
        raise ClaimError(f"{after} {margin}: a margin is more than 0")
    if below_all and margin.unit and amount >= 100:
        raise ClaimError(f"{after} {margin}: a margin below a number is less than 100%")
    return margin
