"""The grammar of claims: `[stage.]metric[(corpus)][@x] [where axis=value, …]: statement`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fope_lab.config.problems import shown
from fope_lab.sweep.claims.statement import (
    ALONG,
    TWO_SIDED,
    Claim,
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
from fope_lab.sweep.claims.text import OTHER_SIGNS, ClaimError, Reader, is_number, other_sign

FORM = "[stage.]metric[(corpus)]@x [where axis=value, …]: a > b [> c]"


def parse_claim(text: str) -> Claim:
    """Return the claim that a text states. Raises ClaimError."""
    if not text.strip():
        raise ClaimError(f"is empty; needs {FORM}")
    if sign := other_sign(text):
        raise ClaimError(f"found {sign} where a claim has {OTHER_SIGNS[sign]}")
    reader = Reader(text)
    quantity = _read_quantity(reader)
    at = _read_points(reader) if reader.skip("@") else None
    where = _read_where(reader)
    if not reader.skip(":"):
        raise reader.wrong("':' and the values to compare")
    subject = _read_subject(reader)
    _refuse_factor_before(subject, reader)
    return Claim(quantity, at, where, _read_statement(subject, reader))


def parse_quantity(text: str) -> Quantity:
    """Return the quantity that a text `[stage.]metric[(corpus)]` names. Raises ClaimError."""
    if not text.strip():
        raise ClaimError("is empty; needs [stage.]metric[(corpus)]")
    reader = Reader(text)
    quantity = _read_quantity(reader)
    reader.end("the end")
    return quantity


def _read_quantity(reader: Reader) -> Quantity:
    stage, metric = None, reader.name("a metric")
    if reader.skip("."):
        stage, metric = metric, reader.name("a metric")
    corpus = None
    if reader.skip("("):
        corpus, _ = reader.value()
        if not reader.skip(")"):
            raise reader.wrong("')' after a corpus")
    return Quantity(metric, stage, corpus)


def _read_points(reader: Reader) -> int | PointRange:
    first = reader.point()
    if not reader.skip(".."):
        return first
    last = reader.point()
    if last <= first:
        raise ClaimError(f"@{first}..{last} is no range: the second point is not above the first")
    return PointRange(first, last)


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


def _read_operand(reader: Reader) -> Pin | Constant:
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


def _read_subject(reader: Reader) -> Operand:
    """Read what stands before a verb, which may be nothing."""
    return Itself() if reader.at_verb() else _read_operand(reader)


def _refuse_factor_before(operand: Operand, reader: Reader) -> None:
    """Raise ClaimError if a number is multiplied, as in 1.01 * rope."""
    if isinstance(operand, Constant) and reader.skip("*"):
        if reader.at_number():
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


def _other_number(operand: Operand) -> Operand:
    if not isinstance(operand, Pin):
        return operand
    if operand.axis is not None:
        raise ClaimError(
            f"compares {operand} with no other value; write one before the sign, or pin it by"
            " `where`"
        )
    return OtherNumber(operand.value)


def _read_order(subject: Operand, verb: str, reader: Reader) -> Statement:
    operands, signs = [subject, _read_operand(reader)], {verb}
    while sign := reader.skip(">") or reader.skip("<"):
        signs.add(sign)
        operands.append(_read_operand(reader))
    if mark := next(filter(None, map(reader.skip, "*+-−")), None):
        raise ClaimError(f"found {mark} after a > or <: a margin goes with >= or <=")
    if len(signs) > 1:
        raise ClaimError("mixes > and <; a chain needs one of them")
    statement = Statement(settle(operands), verb)
    reader.end("> or <")
    return statement


def _read_bound(subject: Operand, verb: str, reader: Reader) -> Statement:
    operands = settle([subject, _read_operand(reader)])
    _refuse_factor_before(operands[1], reader)
    margin = _read_bound_margin(reader, verb)
    if margin is None:
        reader.end("a margin such as * 1.01, + 0.02 or - 0.02, or the end")
    statement = Statement(operands, verb, margin)
    reader.end("the end")
    return statement


def _read_bound_margin(reader: Reader, verb: str) -> Margin | None:
    """Read `* 1.01`, `+ 0.02` or `- 0.02`, which must leave room on the right side."""
    below = verb == "<="
    mark = next(filter(None, map(reader.skip, "*+-−")), "").replace("−", "-")
    if not mark:
        return None
    amount = reader.number(f"a number such as {'1.01' if mark == '*' else '0.02'} after {mark}")
    if reader.skip("%"):
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


def _read_equivalence(subject: Operand, verb: str, reader: Reader) -> Statement:
    second = _read_operand(reader)
    _refuse_factor_before(second, reader)
    operands = settle([subject, second])
    if not reader.words("within"):
        a, b = operands
        raise ClaimError(f"{a} ~ {b} needs a margin, such as {a} ~ {b} within 1%".lstrip())
    statement = Statement(operands, verb, _read_margin(reader, "within", below_all=True))
    reader.end("the end")
    return statement


def _read_along(subject: Operand, verb: str, reader: Reader) -> Statement:
    limited = verb not in TWO_SIDED
    margin = _read_margin(reader, verb, below_all=verb != "grows at most") if limited else None
    settled = subject if isinstance(subject, Itself) else settle([subject])[0]
    along = reader.path("an axis after 'with'") if reader.words("with") else None
    statement = Statement((settled,), verb, margin, along)
    reader.end("'with' and an axis, or the end")
    return statement


def _read_margin(reader: Reader, after: str, *, below_all: bool) -> Margin:
    """Read `1%` or `0.02`; `below_all` says that a fall by 100 % is no limit."""
    amount = reader.number(f"a margin such as 1% or 0.02 after '{after}'")
    margin = Margin(amount, "%" if reader.skip("%") else "")
    if amount <= 0 or (margin.unit and 1 + amount / 100 == 1):
        raise ClaimError(f"{after} {margin}: a margin is more than 0")
    if below_all and margin.unit and amount >= 100:
        raise ClaimError(f"{after} {margin}: a margin below a number is less than 100%")
    return margin


_READERS: Mapping[str, Callable[[Operand, str, Reader], Statement]] = {
    **dict.fromkeys((">", "<"), _read_order),
    **dict.fromkeys(("<=", ">="), _read_bound),
    "~": _read_equivalence,
    **dict.fromkeys(ALONG, _read_along),
}


def _read_statement(subject: Operand, reader: Reader) -> Statement:
    verb = reader.verb()
    if verb:
        return _READERS[verb](subject, verb, reader)
    if reader.words("stays"):
        raise reader.wrong("'within' and a margin, as in 'stays within 5%'")
    if isinstance(subject, Pin) and "~" in subject.value:
        raise ClaimError(
            f"found {shown(subject.value)}: a ~ that compares has a space on each side"
        )
    reader.end("one of > < >= <= ~ grows falls stays")
    raise ClaimError(f"compares {shown(str(subject))} with nothing; needs {FORM}")
