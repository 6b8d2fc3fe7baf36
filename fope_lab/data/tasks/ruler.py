"""Two tasks of RULER (Hsieh et al. 2024, arXiv 2404.06654, §3): key-value and variable tracking.

ruler_key_value.py and ruler_tracking.py say what is hidden and asked; here it becomes prompts of
exact length, and rows to train on. Two forms, as of the passkey: `english` has RULER's prompts,
`symbolic` is for small models. Statements lie at places drawn uniformly; a prompt is seeded by its
length and number alone, so that it is the same for every model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fope_lab.data.problems import DataError
from fope_lab.data.seeding import below, random_words
from fope_lab.data.tasks.haystack import (
    Block,
    Haystack,
    Hidden,
    Ids,
    Name,
    hide,
    room_for,
    single_ids,
)
from fope_lab.data.tasks.passkey import Trial
from fope_lab.data.tokenizers.tokenizer import Tokenizer

Words = NDArray[np.uint64]
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
DIGITS = "0123456789"
CYCLE = "abcdefgh"
MARKER = "#"


@dataclass(frozen=True)
class Content:
    """What a prompt says: statements in the order of the text, questions after all of them, and
    which statement an answer to the last question begins with."""

    statements: list[Block]
    questions: list[Block]
    sought: int


class RulerPrompts(ABC):
    """Prompts of one task in one form for one tokenizer."""

    task: ClassVar[str]
    head: Sequence[int] = ()
    """What stands before the haystack."""

    def __init__(self, tokenizer: Tokenizer, haystack: Haystack) -> None:
        self.tokenizer, self.haystack = tokenizer, haystack

    @property
    @abstractmethod
    def statements(self) -> int:
        """How many statements are hidden."""

    @property
    @abstractmethod
    def chance(self) -> float:
        """The accuracy of naming, by chance, what the text has to name."""

    @abstractmethod
    def words(self, questions: int) -> int:
        """How many random words the content with so many questions takes."""

    @abstractmethod
    def content(self, words: Words, questions: int) -> Content:
        """What is drawn from `words` (of the number that `words` says)."""

    def longest(self) -> Content:
        """Content with one question whose names have the most tokens. By default, names are all as
        long; how a tokenizer merges digits or letters, only the prompts themselves tell."""
        return self.content(np.zeros(self.words(1), np.uint64), 1)

    def check(self, length: int) -> None:
        """Raises DataError if `length` tokens are too few for the longest content: that one prompt
        fits does not say that the next one will."""
        content = self.longest()
        room_for(length, self.head, [*content.statements, *content.questions], self._what)
        self.trial(length, 0)

    def trial(self, length: int, trial: int) -> Trial:
        """Prompt number `trial` of exactly `length` tokens; its depth is that of the statement that
        the answer begins with. Raises DataError if it can't fit."""
        name: Name = (f"{self.task} trial", length, trial)
        [words] = random_words(name, 0, 1, self.statements + self.words(1))
        content, hidden, room = self._hidden(length, words, 1, name)
        answer = hidden.ids[length - content.questions[-1].answer :]
        depth = float(hidden.before[content.sought] / room) if room else 0.0
        return Trial(hidden.ids, answer, depth)

    def training_rows(
        self, length: int, seed: int, first: int, count: int, questions: int | None
    ) -> tuple[Ids, NDArray[np.bool_]]:
        """Rows `first` … `first + count − 1` of a seed's training sequences: their ids
        (count, length) and which of them are answers. A row depends on nothing else.

        Each asks between 1 and `questions` times, or as often as fits, the last time at its end.
        """
        name: Name = (f"{self.task} training", length, seed)
        most = self._fitting(length)
        most = min(questions or most, most)
        drawn = random_words(name, first, count, 1 + self.statements + most + self.words(most))
        rows = []
        for number, words in enumerate(drawn):
            asked = 1 + int(below(words[0], most))
            rows.append(self._hidden(length, words[1:], asked, (*name, first + number))[1])
        return np.stack([row.ids for row in rows]), np.stack([row.answers for row in rows])

    def _fitting(self, length: int) -> int:
        """How many questions fit into a row."""
        once = self.content(np.zeros(self.words(1), np.uint64), 1)
        room = room_for(length, self.head, [*once.statements, *once.questions], self._what)
        return 1 + room // len(once.questions[0].ids)

    def _hidden(
        self, length: int, words: Words, questions: int, name: Name
    ) -> tuple[Content, Hidden, int]:
        """The prompt that `words` stand for, and how many tokens of haystack it has."""
        gaps = self.statements + questions - 1
        content = self.content(words[gaps:], questions)
        blocks = [*content.statements, *content.questions]
        room = room_for(length, self.head, blocks, self._what)
        before = np.append(np.sort(below(words[:gaps], room + 1)), room)
        return content, hide(self.head, blocks, before, self.haystack, name), room

    @property
    def _what(self) -> str:
        return f"a {self.task} prompt with {self.statements} statements"


def distinct(words: Words, limit: int) -> list[int]:
    """Different numbers below `limit` in a random order, half as many as there are words.

    Floyd's choice of a uniformly random set (Bentley & Floyd 1987), then a uniformly random order.
    """
    count = len(words) // 2
    chosen: dict[int, None] = {}
    for word, top in zip(words[:count], range(limit - count, limit), strict=True):
        drawn = int(below(word, top + 1))
        chosen[top if drawn in chosen else drawn] = None
    found = list(chosen)
    return [found[i] for i in np.argsort(words[count:], kind="stable")]


def answered(tokenizer: Tokenizer, question: str, answer: str) -> Block:
    """A question with its answer after it, encoded as one text.

    Raises DataError if the tokenizer merges the two.
    """
    asked, whole = tokenizer.encode(question), tokenizer.encode(question + answer)
    if whole[: len(asked)] != asked:
        raise DataError(f"tokenizer {tokenizer.identity()} merges a question with its answer")
    return Block(whole, len(whole) - len(asked))


def symbols(tokenizer: Tokenizer) -> dict[str, int]:
    """The token of each character of the symbolic forms. Raises DataError if one is none."""
    characters = MARKER + CYCLE + DIGITS + LETTERS
    ids: list[int] = single_ids(tokenizer, characters, "the symbolic form").tolist()
    return dict(zip(characters, ids, strict=True))
