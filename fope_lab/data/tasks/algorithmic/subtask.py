"""What an algorithmic task is: inputs of random length, each with one right answer.

A string is `<bos> input <sep> answer <eos>`. Its symbols are the ids 0, 1, … of the task's
alphabet.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fope_lab.data.seeding import below, random_words
from fope_lab.data.tokenizers.symbols import PREFIX, SYMBOLS

Ids = NDArray[np.int64]
Words = NDArray[np.uint64]
Name = tuple[str | int, ...]
"""The name of a stream of random numbers (seeding.py)."""
FRAME = 3
"""The tokens of a string beside input and answer, where all of <bos>, <sep> and <eos> are there."""
LAST = np.iinfo(np.uint64).max
"""Sorts behind every other random word."""


class Strings(NamedTuple):
    """Inputs and answers, as ids of symbols.

    `inputs` is (count, longest input) and `answers` (count, longest answer), `lengths` and
    `answer_lengths` (count,) say how many of a row's symbols count; the others have no meaning.
    """

    inputs: Ids
    lengths: Ids
    answers: Ids
    answer_lengths: Ids


class AlgorithmicSubtask(ABC):
    """One of the tasks: how its inputs are drawn, and what the answer is."""

    name: ClassVar[str]
    least: ClassVar[int] = 1
    """The number of symbols of the shortest input."""
    answer_symbols: ClassVar[int]
    """The number of symbols that an answer may consist of."""
    separated: ClassVar[bool] = True
    """Whether <sep> stands between input and answer."""

    @property
    def tokenizer(self) -> str:
        """The name of the tokenizer with the task's symbols."""
        return f"{PREFIX}{self.name}"

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols of inputs and answers."""
        return SYMBOLS[self.tokenizer]

    @property
    def most(self) -> int | None:
        """The number of symbols of the longest input, or None if there is none."""
        return None

    @abstractmethod
    def answer_length(self, length: int) -> int:
        """The number of symbols of the longest answer to an input of `length` symbols."""

    def tokens(self, length: int) -> int:
        """The number of tokens of the longest string with an input of `length` symbols."""
        return FRAME - (not self.separated) + length + self.answer_length(length)

    def draw(self, name: Name, first: int, count: int, shortest: int, longest: int) -> Strings:
        """Return strings `first` … `first + count − 1` of the stream `name`.

        The length of an input is uniform from `shortest` to `longest`, as far as the task allows. A
        string depends on the name, its number and these two lengths alone.
        """
        low = max(self.least, shortest)
        words = random_words((*name, "lengths"), first, count, 1)[:, 0]
        lengths = self.possible_lengths(low + below(words, longest - low + 1), low, longest)
        return self.strings(name, first, lengths, longest)

    def possible_lengths(self, lengths: Ids, shortest: int, longest: int) -> Ids:
        """The lengths nearest to these (count,) that inputs can have within the bounds."""
        return lengths

    @abstractmethod
    def strings(self, name: Name, first: int, lengths: Ids, longest: int) -> Strings:
        """Return the strings from number `first` on with inputs of these lengths (count,), the
        longest of which may be `longest`."""


def within(lengths: Ids, width: int) -> NDArray[np.bool_]:
    """Which of `width` symbols are within their string, of lengths (count,): (count, width)."""
    mask: NDArray[np.bool_] = np.arange(width) < lengths[:, None]
    return mask


def shuffled_bits(words: Words, lengths: Ids, ones: Ids) -> Ids:
    """Bits with `ones` (count,) ones among the first `lengths` (count,), in random order.

    `words` is (count, width), as is the result; bits behind a string's length are 0.
    """
    order = np.argsort(np.where(within(lengths, words.shape[1]), words, LAST), axis=1)
    bits = np.zeros(words.shape, np.int64)
    np.put_along_axis(bits, order, within(ones, words.shape[1]).astype(np.int64), axis=1)
    return bits
