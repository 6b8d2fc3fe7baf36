"""Finds a quotation in the text of a paper, as a converter from HTML or PDF leaves it.

A quotation has the paper's words. `[...]` stands for words that are left out; nothing else may
differ but what a converter changes: ligatures, hyphens at the ends of lines, spaces, the forms of
quotation marks and dashes, and how a formula is written. A converter writes a formula several times
(σ=0.3𝜎0.3\\sigma=0.3), and puts footnote marks and addresses of links between words.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

OMISSION = "[...]"
MOST_LEFT_OUT = 1500
"""The most characters that an omission stands for. Words farther apart are not one statement."""

_FORMS = str.maketrans(
    {
        **dict.fromkeys("‘’‚′`", "'"),
        **dict.fromkeys("“”„″", '"'),
        **dict.fromkeys("‐‑‒–—−", "-"),
        "ﬀ": "ff",
        "ﬁ": "fi",
        "ﬂ": "fl",
        "ﬃ": "ffi",
        "ﬄ": "ffl",
        "…": "...",
        "\N{SOFT HYPHEN}": "",
    }
)
_SIGNS = "absent|delimited|divide|over|root|similar|square|subscript|superscript|times"
_MARKED = "italic|bold|roman|start|end|blackboard|caligraphic"
_MARKUP = (
    rf"(?:\\[A-Za-z]+|(?:{_MARKED})_(?:[A-Z]+\b)?"  # of LaTeX, and of a font or a group
    rf"|(?<![A-Za-z])(?:{_SIGNS})(?:-to|-root|-\[\])?(?![A-Za-z])"  # the name of a sign
    rf"|(?:{_SIGNS})(?=[^A-Za-z])"  # the same behind a variable, as in 2absent2
    rf"|(?<![A-Za-z])[A-Za-z](?=[^A-Za-z]|(?:{_MARKED})_)"  # a letter alone is a variable
    r"|[^A-Za-z])"  # no words of the paper: digits, signs, Greek, spaces
)
_FORMULA = rf"{_MARKUP}{{0,400}}?"
"""What a converter writes beside a formula: signs, names and variables, but no word of the text."""


@dataclass(frozen=True)
class NotFound:
    """Why a quotation is not in the text, and the longest beginning of it that is."""

    reason: str
    found: str

    def __str__(self) -> str:
        upto = f", but only up to: {self.found!r}" if self.found else ""
        return f"{self.reason}{upto}"


class PaperText:
    """The text of a paper, in which quotations are looked for."""

    def __init__(self, text: str) -> None:
        self._text = normal(text)

    def find(self, quote: str) -> NotFound | None:
        """Why the quotation is not in the text; None if it is."""
        parts = [normal(part).strip() for part in quote.split(OMISSION)]
        parts = [part for part in parts if part]
        if not parts:
            return NotFound("has no words", "")
        for i in range(len(parts)):
            if not re.search(_pattern(parts[: i + 1], None), self._text):
                start = self._longest_start(parts[:i], parts[i])
                return NotFound("is not in the text", start)
        if not re.search(_pattern(parts, MOST_LEFT_OUT), self._text):
            limit = f"leaves out more than {MOST_LEFT_OUT:,} characters at {OMISSION}"
            return NotFound(limit, "")
        return None

    def _longest_start(self, before: list[str], part: str) -> str:
        words = part.split()
        for count in range(len(words) - 1, 0, -1):
            start = " ".join(words[:count])
            if re.search(_pattern([*before, start], None), self._text):
                return f" {OMISSION} ".join([*before, start])
        return f" {OMISSION} ".join(before)


def normal(text: str) -> str:
    """The text with one form of each sign, one space between words, and no words cut by a line."""
    text = re.sub(r"(?<=[A-Za-z])[-\N{SOFT HYPHEN}‐]\n\s*(?=[a-z])", "", text)
    return re.sub(r"\s+", " ", text.translate(_FORMS).replace("''", '"'))


def _pattern(parts: list[str], most: int | None) -> re.Pattern[str]:
    gap = ".*?" if most is None else f".{{0,{most}}}?"
    return re.compile(gap.join(map(_words, parts)))


def _words(part: str) -> str:
    """The pattern of some words: a space where the text has one, and formulas in any writing."""
    words = part.split()
    pattern = _word(words[0])
    for last, word in itertools.pairwise(words):
        if _is_formula(last) or _is_formula(word):
            between = _FORMULA
        else:  # a converter may lose the space behind a comma and before a citation
            between = r"\s?" if last[-1] in ".,;:" or word[0] == "(" else " "
        pattern += between + _word(word)
    return pattern


def _word(word: str) -> str:
    if not _is_formula(word):
        return re.escape(word)
    start, inner, end = re.fullmatch(r"([(\"']*)(.*?)([.,;:)\"']*)", word).groups()  # type: ignore[union-attr]
    signs = r"\s?".join(map(re.escape, inner))
    if inner[-1:].isdigit():  # the whole of a number
        signs += r"(?![.,]?\d)"
    return _FORMULA.join(filter(None, [re.escape(start), signs, re.escape(end)]))


def _is_formula(word: str) -> bool:
    """Whether a word has signs that a converter may write in several ways."""
    return not re.fullmatch(
        r"[A-Za-z]{2,}(?:[\W_]+[A-Za-z]{2,})*|[aAI]|'s", word.strip(".,;:()\"'")
    )
