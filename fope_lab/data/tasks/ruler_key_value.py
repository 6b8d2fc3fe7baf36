"""RULER's key-value retrieval: several keys, each with a value, and a question about some of them.

With one query this is RULER's "multi-keys NIAH", with several its "multi-queries NIAH". `english`
is RULER's prompt, word for word, where a key is an adjective and a noun; the answer gives the
values in the order of the question. `symbolic` hides keys of one letter in a cyclic filler and asks
with the same marker; a question about several keys names them all before their values:

    …defg#Q47hab#K10cdefghabcd#K10    …defg#Q47hab#K10cdefghabcd#KQ1047
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from fope_lab.data.tasks.haystack import Block, Haystack
from fope_lab.data.tasks.ruler import (
    LETTERS,
    MARKER,
    Content,
    EnglishPrompts,
    RulerPrompts,
    SymbolicPrompts,
    Words,
    distinct,
)
from fope_lab.data.tokenizers.tokenizer import Tokenizer

ADJECTIVES = (
    "able aged brave brief bright calm cheap clean clever cold cool crisp dark deep eager early "
    "empty equal faint fair famous fast fierce firm flat fresh gentle glad grand great happy heavy "
    "honest huge idle keen kind large late light lively lonely loud lucky mild modest narrow neat "
    "noble odd pale plain proud quick quiet rapid rare rich rough round shy silent simple"
)
NOUNS = (
    "anchor apple arrow badge barrel basket beach bell boat bottle branch bridge bucket button "
    "cabin camel candle canyon carpet castle cherry circle cloud coat corner cradle desert door "
    "dragon drum eagle engine falcon feather fence forest fountain garden glove hammer harbour "
    "helmet island jacket kettle ladder lantern lemon marble meadow mirror needle orchard paddle "
    "pencil pillow planet ribbon river rocket saddle shovel"
)


class KeyValuePrompts(RulerPrompts):
    """The part that both forms of key-value retrieval share."""

    task = "key-value"
    names: ClassVar[int]
    """The number of different keys in the form."""

    def __init__(
        self, tokenizer: Tokenizer, haystack: Haystack, keys: int, queries: int, digits: int
    ) -> None:
        super().__init__(tokenizer, haystack)
        self.keys, self.queries, self.digits = keys, queries, digits
        self._lowest = 10 ** (digits - 1)

    @property
    def statements(self) -> int:
        """The number of statements: one for each key."""
        return self.keys

    @property
    def chance(self) -> float:
        """The accuracy of naming random values of the prompt: 1/keys for one query."""
        return 1 / math.perm(self.keys, self.queries)

    def words(self, questions: int) -> int:
        return 4 * self.keys + 2 * self.queries * questions

    def content(self, words: Words, questions: int) -> Content:
        """Return content of distinct keys, and distinct values of `digits` digits without a
        leading 0."""
        keys = distinct(words[: 2 * self.keys], self.names)
        values = distinct(words[2 * self.keys : 4 * self.keys], 9 * self._lowest)
        pairs = [(key, str(self._lowest + value)) for key, value in zip(keys, values, strict=True)]
        rest = words[4 * self.keys :][: 2 * self.queries * questions]
        queried = [distinct(part, self.keys) for part in np.split(rest, questions)]
        return Content(
            [Block(self.statement(key, value)) for key, value in pairs],
            [self.question([pairs[i] for i in indices]) for indices in queried],
            queried[-1][0],
        )

    @abstractmethod
    def statement(self, key: int, value: str) -> Sequence[int]:
        """Return the tokens that state a key's value."""

    @abstractmethod
    def question(self, pairs: Sequence[tuple[int, str]]) -> Block:
        """Return the tokens that ask for the values of some keys, followed by the answer."""


class EnglishKeyValue(EnglishPrompts, KeyValuePrompts):
    """RULER's prompt (scripts/data/synthetic/constants.py and niah.py of NVIDIA/RULER)."""

    adjectives, nouns = ADJECTIVES.split(), NOUNS.split()
    names = len(adjectives) * len(nouns)
    tasks = (
        "A special magic number is hidden within the following text. Make sure to memorize it. "
        "I will quiz you about the number afterwards.\n",
        "Some special magic numbers are hidden within the following text. Make sure to memorize "
        "it. I will quiz you about the numbers afterwards.\n",
    )
    needle = "\nOne of the special magic numbers for {key} is: {value}.\n"
    questions = (
        "\nWhat is the special magic number for {query} mentioned in the provided text? "
        "The special magic number for {query} mentioned in the provided text is",
        "\nWhat are all the special magic numbers for {query} mentioned in the provided text? "
        "The special magic numbers for {query} mentioned in the provided text are",
    )
    """The questions for one query and for several."""

    def introduction(self) -> str:
        return self.tasks[self.queries > 1]

    def statement(self, key: int, value: str) -> Sequence[int]:
        return self.tokenizer.encode(self.needle.format(key=self._name(key), value=value))

    def question(self, pairs: Sequence[tuple[int, str]]) -> Block:
        query = listed([self._name(key) for key, _ in pairs])
        question = self.questions[self.queries > 1].format(query=query)
        return self.answered(question, f" {listed([value for _, value in pairs])}")

    def longest(self) -> Content:
        """Return content with one question, made of the names with the most tokens."""
        value = "1" * self.digits
        statements = [self.statement(key, value) for key in range(self.names)]
        sizes = np.array([len(statement) for statement in statements])
        keys = np.argsort(-sizes, kind="stable")[: self.keys].tolist()
        return Content(
            [Block(statements[key]) for key in keys],
            [self.question([(key, value) for key in keys[: self.queries]])],
            0,
        )

    def _name(self, key: int) -> str:
        adjective, noun = divmod(key, len(self.nouns))
        return f"{self.adjectives[adjective]}-{self.nouns[noun]}"


class SymbolicKeyValue(SymbolicPrompts, KeyValuePrompts):
    """Key-value retrieval with keys of one letter."""

    names = len(LETTERS)

    def statement(self, key: int, value: str) -> Sequence[int]:
        return self.spelt(MARKER + LETTERS[key] + value)

    def question(self, pairs: Sequence[tuple[int, str]]) -> Block:
        keys = "".join(LETTERS[key] for key, _ in pairs)
        answer = "".join(value for _, value in pairs)
        return Block(self.spelt(MARKER + keys + answer), len(answer))


def listed(items: Sequence[str]) -> str:
    """Return the items as RULER lists the keys of a question: "a", "a, and b", "a, b, and c"."""
    return ", and ".join(filter(None, [", ".join(items[:-1]), items[-1]]))


KEY_VALUE_FORMS: dict[str, type[EnglishKeyValue] | type[SymbolicKeyValue]] = {
    form.form: form for form in (EnglishKeyValue, SymbolicKeyValue)
}
