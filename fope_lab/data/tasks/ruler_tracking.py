"""RULER's variable tracking: chains of assignments, and a question about one value's variables.

Each chain assigns a value to a variable, then that variable to the next, `hops` times. The
statements of a chain keep their order and are mixed with those of the other chains. The question
names the value of one chain; the answer lists its variables in the order of the chain. With a
single chain, as in RULER, the answer is all variables of the text in the order in which they first
appear: only several chains require tracking.

`english` is RULER's prompt, word for word (including the released script's "assgined"), after a
solved example with one chain. `symbolic` is in a cyclic filler: #7Q gives Q the value 7, #QB gives
B the value of Q, and #7 asks.

    …fgha#7Qbcd#3Kefghab#QBcde#KAfgh#7QB
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from fope_lab.data.seeding import below
from fope_lab.data.tasks.haystack import Block, Haystack
from fope_lab.data.tasks.passkey import EnglishForm
from fope_lab.data.tasks.ruler import (
    DIGITS,
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

EXAMPLE_HOPS = 10


class TrackingPrompts(RulerPrompts):
    """The part that both forms of variable tracking share."""

    task = "variable-tracking"
    names: ClassVar[int]
    """The number of different variables in the form."""
    values: ClassVar[int]
    """The number of different values in the form."""

    def __init__(self, tokenizer: Tokenizer, haystack: Haystack, chains: int, hops: int) -> None:
        super().__init__(tokenizer, haystack)
        self.chains, self.hops = chains, hops

    @property
    def statements(self) -> int:
        """The number of statements: one for each variable."""
        return self.chains * (self.hops + 1)

    @property
    def chance(self) -> float:
        """The accuracy of naming hops + 1 random variables in the order of the text."""
        return 1 / math.comb(self.statements, self.hops + 1)

    def words(self, questions: int) -> int:
        return 3 * self.statements + 2 * self.chains + questions

    def content(self, words: Words, questions: int) -> Content:
        """Return content of distinct variables and values, with the chains mixed uniformly."""
        size = self.hops + 1
        ends = np.cumsum([2 * self.statements, self.statements, 2 * self.chains])
        for_names, for_order, for_values, rest = np.split(words, ends)
        names = np.array(distinct(for_names, self.names)).reshape(self.chains, size)
        values = distinct(for_values, self.values)
        order = np.argsort(for_order, kind="stable") % self.chains  # the chain of each statement
        reached = np.zeros(self.chains, np.int64)
        statements, places = [], np.zeros(self.chains, np.int64)
        for place, chain in enumerate(order):
            step = int(reached[chain])
            if step:
                given = self.hop(int(names[chain, step - 1]), int(names[chain, step]))
            else:
                given = self.start(values[chain], int(names[chain, 0]))
                places[chain] = place
            statements.append(Block(given))
            reached[chain] += 1
        queried = below(rest[:questions], self.chains)
        blocks = [self.question(values[chain], names[chain].tolist()) for chain in queried]
        return Content(statements, blocks, int(places[queried[-1]]))

    @abstractmethod
    def start(self, value: int, variable: int) -> Sequence[int]:
        """Return the tokens that assign a value to a variable."""

    @abstractmethod
    def hop(self, source: int, variable: int) -> Sequence[int]:
        """Return the tokens that assign the value of `source` to a variable."""

    @abstractmethod
    def question(self, value: int, variables: Sequence[int]) -> Block:
        """Return the tokens that ask for a value's variables, followed by the answer."""


class EnglishTracking(EnglishPrompts, TrackingPrompts):
    """RULER's prompt (scripts/data/synthetic/constants.py and variable_tracking.py of
    NVIDIA/RULER). Its example is one chain of three-letter variables with the same number of hops,
    but at most ten."""

    names = len(LETTERS) ** 5
    values = 90_000
    task_line = (
        "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n"
    )
    asking = (
        "\nQuestion: Find all variables that are assigned the value {query} in the text above. "
        "Answer: According to the chain(s) of variable assignment in the text above, {num_v} "
        "variables are assgined the value {query}, they are:"
    )

    def introduction(self) -> str:
        return self._example() + self.task_line

    def start(self, value: int, variable: int) -> Sequence[int]:
        return self.tokenizer.encode(f"\nVAR {spell(variable, 5)} = {10_000 + value}\n")

    def hop(self, source: int, variable: int) -> Sequence[int]:
        return self.tokenizer.encode(f"\nVAR {spell(variable, 5)} = VAR {spell(source, 5)}\n")

    def question(self, value: int, variables: Sequence[int]) -> Block:
        names = [spell(variable, 5) for variable in variables]
        return self.answered(self._asking(10_000 + value, len(names)), _answer(names))

    def _example(self) -> str:
        """Return a solved prompt, which is the same for all trials."""
        count = min(self.hops, EXAMPLE_HOPS) + 1
        names = [spell(4321 * (i + 1) % len(LETTERS) ** 3, 3) for i in range(count)]
        sources = ["12345", *(f"VAR {name}" for name in names)]
        lines = [f"VAR {name} = {given}" for name, given in zip(names, sources, strict=False)]
        context = "\n".join(f"{EnglishForm.sentences}\n{line}" for line in lines)
        return f"{self.task_line}{context}{self._asking(12_345, count)}{_answer(names)}\n\n"

    def _asking(self, value: int, count: int) -> str:
        return self.asking.format(query=value, num_v=count)


class SymbolicTracking(SymbolicPrompts, TrackingPrompts):
    """Variable tracking with variables of one letter and values of one digit."""

    names = len(LETTERS)
    values = len(DIGITS)

    def start(self, value: int, variable: int) -> Sequence[int]:
        return self.spelt(MARKER + DIGITS[value] + LETTERS[variable])

    def hop(self, source: int, variable: int) -> Sequence[int]:
        return self.spelt(MARKER + LETTERS[source] + LETTERS[variable])

    def question(self, value: int, variables: Sequence[int]) -> Block:
        answer = "".join(LETTERS[variable] for variable in variables)
        return Block(self.spelt(MARKER + DIGITS[value] + answer), len(answer))


def spell(number: int, letters: int) -> str:
    """Return the name of a variable: its number in base 26, with `letters` letters."""
    name = ""
    for _ in range(letters):
        number, digit = divmod(number, len(LETTERS))
        name = LETTERS[digit] + name
    return name


def _answer(names: Sequence[str]) -> str:
    return f" {' '.join(names)}"


TRACKING_FORMS: dict[str, type[EnglishTracking] | type[SymbolicTracking]] = {
    form.form: form for form in (EnglishTracking, SymbolicTracking)
}
