"""Two tasks of RULER (Hsieh et al. 2024, arXiv 2404.06654, §3): key-value and variable tracking.

Prompts of an exact length, and training rows; ruler_tasks.py has the tasks. As for the passkey,
there are two forms: `english` uses RULER's prompts, `symbolic` suits small models. Statements are
placed uniformly at random. A prompt's seed is its length and number alone, so every model gets the
same prompts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fope_lab.data.problems import DataError
from fope_lab.data.seeding import Name, Words, below, random_words
from fope_lab.data.tasks.haystack import (
    Block,
    Haystack,
    Hidden,
    cycle,
    filler,
    held_out_text,
    hide,
    room_for,
    single_ids,
)
from fope_lab.data.tasks.passkey import EnglishForm, Marked, Trial
from fope_lab.data.tokenizers.tokenizer import Tokenizer

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
DIGITS = "0123456789"
CYCLE = "abcdefgh"
MARKER = "#"


@dataclass(frozen=True)
class Content:
    """The content of a prompt: its statements in the order of the text, the questions after them,
    and `sought`, the index of the statement that the answer to the last question begins with."""

    statements: list[Block]
    questions: list[Block]
    sought: int


class RulerPrompts(ABC):
    """Builds the prompts of a task in one form for one tokenizer; `of` has the task's options."""

    head: Sequence[int] = ()
    """The tokens before the haystack."""

    def __init__(self, tokenizer: Tokenizer, haystack: Haystack, of: Any) -> None:
        self.tokenizer, self.haystack, self.of = tokenizer, haystack, of

    @property
    @abstractmethod
    def statements(self) -> int:
        """The number of statements that are hidden in a prompt."""

    @property
    @abstractmethod
    def chance(self) -> float:
        """The accuracy of an answer drawn at random from the names or values in the text."""

    @abstractmethod
    def words(self, questions: int) -> int:
        """How many random words the content with `questions` questions consumes."""

    @abstractmethod
    def content(self, words: Words, questions: int) -> Content:
        """What the random words determine; `words(questions)` says how many."""

    def longest(self) -> Content:
        """Content with one question whose names have the most tokens; by default all names count as
        equally long."""
        return self.content(np.zeros(self.words(1), np.uint64), 1)

    def check(self, length: int) -> None:
        """Raise DataError if `length` tokens are too few for the longest content."""
        content = self.longest()
        room_for(length, self.head, [*content.statements, *content.questions], self._what)
        self.trial(length, 0)

    def trial(self, length: int, trial: int) -> Trial:
        """Prompt number `trial` of exactly `length` tokens; its depth is that of the statement that
        the answer begins with. Raises DataError if the prompt is longer than `length`."""
        name: Name = (f"{self.of.task} trial", length, trial)
        [words] = random_words(name, 0, 1, self.statements + self.words(1))
        content, hidden, room = self._hidden(length, words, 1, name)
        answer = hidden.ids[length - content.questions[-1].answer :]
        depth = float(hidden.before[content.sought] / room) if room else 0.0
        return Trial(hidden.ids, answer, depth)

    def training_rows(
        self, length: int, seed: int, first: int, count: int, questions: int | None
    ) -> Marked:
        """As PromptForm.training_rows. A row asks 1 to `questions` questions, or as many as fit if
        that is None; the last one ends it."""
        name: Name = (f"{self.of.task} training", length, seed)
        most = self._fitting(length)
        most = min(questions or most, most)
        drawn = random_words(name, first, count, 1 + self.statements + most + self.words(most))
        rows = []
        for number, words in enumerate(drawn):
            row_questions = 1 + int(below(words[0], most))
            rows.append(self._hidden(length, words[1:], row_questions, (*name, first + number))[1])
        return np.stack([row.ids for row in rows]), np.stack([row.answers for row in rows])

    def _fitting(self, length: int) -> int:
        once = self.content(np.zeros(self.words(1), np.uint64), 1)
        room = room_for(length, self.head, [*once.statements, *once.questions], self._what)
        return 1 + room // len(once.questions[0].ids)

    def _hidden(
        self, length: int, words: Words, questions: int, name: Name
    ) -> tuple[Content, Hidden, int]:
        """The prompt that the random words determine, and its number of haystack tokens."""
        gaps = self.statements + questions - 1
        content = self.content(words[gaps:], questions)
        blocks = [*content.statements, *content.questions]
        room = room_for(length, self.head, blocks, self._what)
        before = np.append(np.sort(below(words[:gaps], room + 1)), room)
        return content, hide(self.head, blocks, before, self.haystack, name), room

    @property
    def _what(self) -> str:
        return f"a {self.of.task} prompt with {self.statements} statements"


class EnglishPrompts(RulerPrompts):
    """Prompts in English, hidden in the passkey's filler if there is no other haystack."""

    def __init__(self, tokenizer: Tokenizer, text: Any | None, of: Any) -> None:
        haystack = filler(tokenizer, EnglishForm.sentences) if text is None else held_out_text(text)
        super().__init__(tokenizer, haystack, of)
        self.head = [*tokenizer.prefix_ids, *tokenizer.encode(self.introduction())]

    @abstractmethod
    def introduction(self) -> str:
        """The text before the haystack."""

    def answered(self, question: str, answer: str) -> Block:
        """A question and its answer as one text. Raises DataError if the tokenizer merges them."""
        prompt, whole = map(self.tokenizer.encode, (question, question + answer))
        if whole[: len(prompt)] != prompt:
            message = f"tokenizer {self.tokenizer.identity()} merges a question with its answer"
            raise DataError(message)
        return Block(whole, len(whole) - len(prompt))


class SymbolicPrompts(RulerPrompts):
    """Prompts of single characters, hidden in a cycle of letters if there is no other haystack.

    Raises DataError if a character is not a single token of its own.
    """

    def __init__(self, tokenizer: Tokenizer, text: Any | None, of: Any) -> None:
        ids = single_ids(tokenizer, CYCLE + MARKER + DIGITS + LETTERS, "the symbolic form")
        self._ids = dict(zip(CYCLE + MARKER + DIGITS + LETTERS, ids.tolist(), strict=True))
        haystack = cycle(ids[: len(CYCLE)]) if text is None else held_out_text(text)
        super().__init__(tokenizer, haystack, of)

    def spelt(self, text: str) -> list[int]:
        return [self._ids[character] for character in text]


def distinct(words: Words, limit: int) -> list[int]:
    """Distinct numbers below `limit` in random order, half as many as there are words. Floyd's
    algorithm draws a uniformly random set (Bentley & Floyd 1987), which is then shuffled."""
    count = len(words) // 2
    numbers: dict[int, None] = {}
    for word, top in zip(words[:count], range(limit - count, limit), strict=True):
        drawn = int(below(word, top + 1))
        numbers[top if drawn in numbers else drawn] = None
    ordered = list(numbers)
    return [ordered[i] for i in np.argsort(words[count:], kind="stable")]
