"""The text of a claim, read from left to right: one word, number, name or value at a time."""

from __future__ import annotations

import json
import math
import re

from fope_lab.config.problems import UserError, shown

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_AXIS = re.compile(r"[A-Za-z0-9_.-]+")
_EQUALS = re.compile(r"=(?![=<>]|~(?:\s|$))")
_SPACE = re.compile(r"\s*")
_POINT = re.compile(r"[0-9]{1,18}(?![A-Za-z0-9_]|\.(?!\.))")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_ENDS = frozenset(',:<>=")@*')
_JSON = json.JSONDecoder(strict=False)
_WORD_END = r"(?![A-Za-z0-9_.(=-])"
_VERB = re.compile(
    r"<=|>=|<|>|~|(?:(?:grows|falls)\s+at\s+most|stays\s+within|grows|falls)" + _WORD_END
)
_SUBJECT_LEFT_OUT = re.compile(r"[<>]|~(?=\s|$)|(?:grows|falls|stays)(?=\s|$)")

_EQUAL = "~ and a margin, as in a ~ b within 1%"
OTHER_SIGNS = {
    "==": f"{_EQUAL}, or axis=value",
    **dict.fromkeys(("~=", "=~", "≈", "≃"), _EQUAL),
    **dict.fromkeys(("!=", "≠", "<>"), "> or <"),
    **dict.fromkeys(("≤", "=<"), "<="),
    **dict.fromkeys(("≥", "=>"), ">="),
}
"""How other languages write a sign, and what a claim has for it."""
# Not the =~ of axis=~/folder.
_OTHER_SIGN = re.compile("|".join(OTHER_SIGNS).replace("=~", r"=~(?=\s)"))
_QUOTED = re.compile(r'"(?:\\.|[^"\\])*"')
_BRACKETS = re.compile(r"\([^()]*\)")


class ClaimError(UserError):
    """A text is not a claim, or its sweep can't answer the claim."""


def is_number(text: str) -> bool:
    """Whether a text is a number as a claim writes it: 12, -0.5, 6e-4."""
    return _NUMBER.fullmatch(text) is not None


def other_sign(text: str) -> str:
    """Return the first of OTHER_SIGNS outside quotes and brackets; empty if there is none."""
    plain = _QUOTED.sub("", text)
    while (without := _BRACKETS.sub("", plain)) != plain:
        plain = without
    found = _OTHER_SIGN.search(plain)
    return found[0] if found else ""


class Reader:
    """A text and the position reached in it. What can't be read raises ClaimError."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def skip(self, mark: str) -> str:
        """Return a mark and go past it, if it comes next; the empty string otherwise."""
        self._skip_space()
        if not self._text.startswith(mark, self._at):
            return ""
        self._at += len(mark)
        return mark

    def words(self, *words: str) -> bool:
        """Go past these whole words, if they come next; whether they did."""
        return self._match(re.compile(r"\s+".join(words) + _WORD_END)) is not None

    def verb(self) -> str:
        """Return the sign or verb of a statement, its words one space apart; empty if none."""
        return " ".join((self._match(_VERB) or "").split())

    def at_verb(self) -> bool:
        """Whether a statement goes on without having said what it is about."""
        return self._comes(_SUBJECT_LEFT_OUT)

    def at_number(self) -> bool:
        """Whether a number comes next."""
        return self._comes(_NUMBER)

    def name(self, what: str) -> str:
        """Return the name that comes next: letters, digits, _ and -."""
        return self._need(_NAME, what)

    def axis(self) -> str:
        """Return the axis of `axis=` and go past the sign; the empty string if there is none."""
        before = self._at
        axis = self._match(_AXIS)
        if axis is not None and self._match(_EQUALS) is not None:
            return axis
        self._at = before
        return ""

    def path(self, what: str) -> str:
        """Return the name of an axis that comes next, with dots."""
        return self._need(_AXIS, what)

    def point(self) -> int:
        """Return the point of a curve that comes next."""
        return int(self._need(_POINT, "a whole number such as 1024 after @"))

    def number(self, what: str) -> float:
        """Return the finite number that comes next."""
        text = self._match(_NUMBER)
        if text is None or self._text[self._at : self._at + 1] not in ("", " ", "%", "\n", "\t"):
            raise self.wrong(what)
        if not math.isfinite(float(text)):
            raise ClaimError(f"{text} is too large for a number")
        return float(text)

    def value(self) -> tuple[str, bool]:
        """Return the value that comes next, without spaces, and whether it stands in quotes."""
        self._skip_space()
        if self._text.startswith('"', self._at):
            try:
                value, self._at = _JSON.raw_decode(self._text, self._at)
            except ValueError:
                raise self.wrong("a closing quote") from None
            return str(value), True
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
        return "".join(self._text[start : self._at].split()), False

    def end(self, needed: str) -> None:
        """Raise ClaimError if anything is left, saying what would have been needed."""
        self._skip_space()
        if self._at < len(self._text):
            raise self.wrong(needed)

    def wrong(self, needed: str) -> ClaimError:
        """The error that something else than what is needed comes next."""
        self._skip_space()
        rest = self._text[self._at :]
        found = f"found {shown(rest)}" if rest else "ends"
        before = self._text[: self._at].rstrip()
        return ClaimError(f"{found} after {shown(before)}, needs {needed}")

    def _comes(self, pattern: re.Pattern[str]) -> bool:
        self._skip_space()
        return pattern.match(self._text, self._at) is not None

    def _skip_space(self) -> None:
        found = _SPACE.match(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _need(self, pattern: re.Pattern[str], what: str) -> str:
        found = self._match(pattern)
        if found is None:
            raise self.wrong(what)
        return found

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        self._skip_space()
        found = pattern.match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        return found[0]
