"""What the numbers of an analysis are called where people read them.

An analysis declares the words in the annotation of what its `numbers` returns:

    def numbers(self, arrays: Arrays) -> Annotated[dict[str, float], NumberWords({
        "{kind}_fast_share": "share of the {kind}'s norm in the fastest quarter of the pairs",
    })]:

The names themselves are for programs: results, JSON and MLflow have them.
"""

from __future__ import annotations

import functools
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class NumberWords:
    """The words of numbers, with the unit after a comma, by the patterns of their names.

    A name in braces stands for any text, which the words repeat. `values` has the words for such
    texts, by their patterns; any other stands as it is, but with hyphens for underscores.
    """

    patterns: Mapping[str, str]
    values: Mapping[str, str] = field(default_factory=dict)

    def of(self, name: str) -> str | None:
        """The words for a number by the first pattern that its name fits, or None."""
        for pattern, words in self.patterns.items():
            if match := _expression(pattern).fullmatch(name):
                texts = {part: self._text(text) for part, text in match.groupdict().items()}
                return words.format(**texts)
        return None

    def _text(self, text: str) -> str:
        return NumberWords(self.values).of(text) or text.replace("_", "-")


def words_of_number(numbers: Callable[..., object], name: str) -> str:
    """The words that the method `numbers` declares for a name; else the name without underscores.

    An older version may have given numbers that today's method does not.
    """
    declared = declared_words(numbers)
    return (declared and declared.of(name)) or name.replace("_", " ")


@functools.cache
def declared_words(numbers: Callable[..., object]) -> NumberWords | None:
    """The words in the annotation of what the method `numbers` returns, or None."""
    text = numbers.__annotations__.get("return", "")
    if "Annotated" not in str(text):
        return None
    # Only the annotation of what is returned: others may name what is imported for checks alone.
    found = eval(text, numbers.__globals__) if isinstance(text, str) else text
    metadata = typing.get_args(found)[1:]
    return next((entry for entry in metadata if isinstance(entry, NumberWords)), None)


@functools.cache
def _expression(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", pattern)
    return re.compile(
        "".join(f"(?P<{p}>.+?)" if i % 2 else re.escape(p) for i, p in enumerate(parts))
    )
