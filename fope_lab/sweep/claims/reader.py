"""Reads the text of a claim from left to right, one word, number, name or value at a time."""

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
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_ENDS = frozenset(',:<>=")@*')
_JSON = json.JSONDecoder(strict=False)


class ClaimError(UserError):
    """A text is not a claim, or its sweep can't answer the claim."""


def is_number(text: str) -> bool:
    """Whether a text is a number as a claim writes it: 12, -0.5, 6e-4."""
    return NUMBER.fullmatch(text) is not None


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
        end = r"(?![A-Za-z0-9_.(=-])"
        return self._match(re.compile(r"\s+".join(words) + end)) is not None

    def comes(self, pattern: re.Pattern[str]) -> bool:
        """Whether what comes next matches a pattern."""
        self._skip_space()
        return pattern.match(self._text, self._at) is not None

    def name(self, what: str) -> str:
        """Return the name that comes next: letters, digits, _ and -."""
        name = self._match(_NAME)
        if name is None:
            raise self.wrong(what)
        return name

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
        path = self._match(_AXIS)
        if path is None:
            raise self.wrong(what)
        return path

    def point(self) -> int:
        """Return the point of a curve that comes next."""
        digits = self._match(_POINT)
        if digits is None:
            raise self.wrong("a whole number such as 1024 after @")
        return int(digits)

    def number(self, what: str) -> float:
        """Return the finite number that comes next."""
        text = self._match(NUMBER)
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

    def _skip_space(self) -> None:
        found = _SPACE.match(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        self._skip_space()
        found = pattern.match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        return found[0]


def quoted(value: str) -> str:
    """Return a value in the quotes of JSON."""
    return json.dumps(value, ensure_ascii=False)
