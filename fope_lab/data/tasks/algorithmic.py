"""The eight algorithmic tasks of Huang et al., "A Formal Framework for Understanding Length
Generalization in Transformers", arXiv 2410.02140: inputs of random length, each with one answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from fope_lab.data.seeding import Ids, Name, Words, below, random_words
from fope_lab.data.tokenizers.tokenizer import PREFIX, SYMBOLS

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


SUBTASKS: dict[str, AlgorithmicSubtask] = {}
"""The eight tasks, by the names that a sweep file gives them."""


class AlgorithmicSubtask(ABC):
    """One of the tasks: how its inputs are drawn, and what the answer is."""

    name: ClassVar[str]
    least: ClassVar[int] = 1
    """The number of symbols of the shortest input."""
    answer_symbols: ClassVar[int]
    """The number of symbols that an answer may consist of."""
    answer_size: ClassVar[int | None] = None
    """The number of symbols of every answer; None for as many as the input has."""
    separated: ClassVar[bool] = True
    """Whether <sep> stands between input and answer."""

    def __init_subclass__(cls) -> None:
        if "name" in cls.__dict__:
            SUBTASKS[cls.name] = cls()

    @property
    def tokenizer(self) -> str:
        return f"{PREFIX}{self.name}"

    @property
    def symbols(self) -> tuple[str, ...]:
        return SYMBOLS[self.tokenizer]

    @property
    def most(self) -> int | None:
        """The symbols of the longest input; None without a limit."""
        return None

    def answer_length(self, length: int) -> int:
        """The symbols of the longest answer to an input of `length` symbols."""
        return self.answer_size or length

    def tokens(self, length: int) -> int:
        """The tokens of the longest string with an input of `length` symbols."""
        return FRAME - (not self.separated) + length + self.answer_length(length)

    def draw(self, name: Name, first: int, count: int, shortest: int, longest: int) -> Strings:
        """Strings `first` … `first + count − 1` of the stream `name`. An input's length is uniform
        from `shortest` to `longest`, as far as the task allows. A string depends on the name, its
        number and these two lengths alone."""
        low = max(self.least, shortest)
        words = random_words((*name, "lengths"), first, count, 1)[:, 0]
        lengths = self.possible_lengths(low + below(words, longest - low + 1), low, longest)
        return self.strings(name, first, lengths, longest)

    def possible_lengths(self, lengths: Ids, shortest: int, longest: int) -> Ids:
        """The lengths nearest to these (count,) that inputs can have within the bounds."""
        return lengths

    @abstractmethod
    def strings(self, name: Name, first: int, lengths: Ids, longest: int) -> Strings:
        """The strings from number `first` on with inputs of `lengths` (count,), at most
        `longest`."""


def within(lengths: Ids, width: int) -> NDArray[np.bool_]:
    """Which of `width` symbols are within their string, of lengths (count,): (count, width)."""
    mask: NDArray[np.bool_] = np.arange(width) < lengths[:, None]
    return mask


def shuffled_bits(words: Words, lengths: Ids, ones: Ids) -> Ids:
    """Bits with `ones` (count,) ones among the first `lengths` (count,), in random order. `words`
    is (count, width), as is the result; bits behind a string's length are 0."""
    order = np.argsort(np.where(within(lengths, words.shape[1]), words, LAST), axis=1)
    bits = np.zeros(words.shape, np.int64)
    np.put_along_axis(bits, order, within(ones, words.shape[1]).astype(np.int64), axis=1)
    return bits


class Parity(AlgorithmicSubtask):
    """Whether the number of ones is even (e) or odd (o); it is uniform from 0 to the length."""

    name = "parity"
    answer_symbols = 2
    answer_size = 1
    least = 0

    def strings(self, name: Name, first: int, lengths: Ids, longest: int) -> Strings:
        words = random_words(name, first, len(lengths), 1 + longest)
        ones = below(words[:, 0], lengths + 1)
        answers = self.symbols.index("e") + ones[:, None] % 2
        bits = shuffled_bits(words[:, 1:], lengths, ones)
        return Strings(bits, lengths, answers, np.ones_like(lengths))


class Addition(AlgorithmicSubtask):
    """The sum of two binary numbers, written as `a + b =`, which needs no <sep>.

    The length of the first number is uniform among the possible ones. Numbers start with 1, except
    the one-digit number 0.
    """

    name = "addition"
    answer_symbols = 2
    least = 4
    separated = False

    def answer_length(self, length: int) -> int:
        return length - 2  # the other number has one digit, and a carry adds one to the longer one

    def strings(self, name: Name, first: int, lengths: Ids, longest: int) -> Strings:
        words = random_words(name, first, len(lengths), 1 + 2 * longest)
        left = 1 + below(words[:, 0], lengths - 3)
        right = lengths - 2 - left
        a, b = below(words[:, 1 : 1 + longest], 2), below(words[:, 1 + longest :], 2)
        a[:, 0] |= left > 1
        b[:, 0] |= right > 1
        places = np.broadcast_to(np.arange(longest), a.shape)
        after = left[:, None] + 1
        behind = np.take_along_axis(b, np.clip(places - after, 0, None), axis=1)
        inputs = np.where(places < left[:, None], a, behind)
        np.put_along_axis(inputs, left[:, None], self.symbols.index("+"), axis=1)
        np.put_along_axis(inputs, lengths[:, None] - 1, self.symbols.index("="), axis=1)
        answers, answer_lengths = _sum(a, left, b, right)
        return Strings(inputs, lengths, answers, answer_lengths)


def _sum(a: Ids, left: Ids, b: Ids, right: Ids) -> tuple[Ids, Ids]:
    """The bits (count, width) of the sums of two numbers, and how many there are (count,)."""
    width = a.shape[1]
    total = _reversed(a, left) + _reversed(b, right)
    for place in range(width - 1):
        total[:, place + 1] += total[:, place] >> 1
    total &= 1
    highest = width - np.argmax(total[:, ::-1], axis=1)
    lengths = np.where(total.any(1), highest, 1)
    return _reversed(total, lengths), lengths


def _reversed(bits: Ids, lengths: Ids) -> Ids:
    """The first `lengths` (count,) bits in reverse order, and zeros behind them."""
    width = bits.shape[1]
    places = np.clip(lengths[:, None] - 1 - np.arange(width), 0, None)
    return np.take_along_axis(bits, places, axis=1) * within(lengths, width)


class _DifferentSymbols(AlgorithmicSubtask):
    """A task whose inputs are different symbols in random order."""

    @property
    def most(self) -> int:
        return len(self.symbols)

    def _different(self, name: Name, first: int, lengths: Ids, longest: int) -> Ids:
        """Draw different symbols, in random order: (count, longest)."""
        words = random_words(name, first, len(lengths), len(self.symbols))
        return np.argsort(words, axis=1)[:, :longest]


class UniqueCopy(_DifferentSymbols):
    """The input again; its symbols are different."""

    name = "unique_copy"
    answer_symbols = 150

    def strings(self, name: Name, first: int, lengths: Ids, longest: int) -> Strings:
        inputs = self._different(name, first, lengths, longest)
        return Strings(inputs, lengths, inputs, lengths)


class Sort(_DifferentSymbols):
    """The input in ascending order; its numbers are different."""

    name = "sort"
    answer_symbols = 150

    def strings(self, name: Name, first: int, lengths: Ids, longest: int) -> Strings:
        inputs = self._different(name, first, lengths, longest)
        ordered = np.sort(np.where(within(lengths, longest), inputs, len(self.symbols)), axis=1)
        return Strings(inputs, lengths, ordered, lengths)


class RepeatCopy(AlgorithmicSubtask):
    """The input again; its symbols are uniformly one of two."""

    name = "repeat_copy"
    answer_symbols = 2

    def strings(self, name: Name, first: int, lengths: Ids, longest: int) -> Strings:
        words = random_words(name, first, len(lengths), longest)
        inputs = below(words, len(self.symbols))
        return Strings(inputs, lengths, inputs, lengths)


STRANDS = 3
"""The strings of bits that are interleaved."""
ATTEMPTS = (1, 8, 64)
"""How many inputs are drawn at a time until one has a majority; the last number repeats."""


def bits_without_tie(words: Words, lengths: Ids) -> tuple[Ids, Ids]:
    """Bits (count, width) and their majority (count,), of `words` (count, 1 + width). The number of
    zeros is uniform from 0 to the length, except half of it."""
    ties = lengths % 2 == 0
    zeros = below(words[:, 0], lengths + 1 - ties)
    zeros += ties & (zeros >= lengths // 2)  # skips the tie
    ones = lengths - zeros
    return shuffled_bits(words[:, 1:], lengths, ones), (ones > zeros).astype(np.int64)


class BinMajority(AlgorithmicSubtask):
    """The majority of bits, which are never tied."""

    name = "bin_majority"
    answer_symbols = 2
    answer_size = 1

    def strings(self, name: Name, first: int, lengths: Ids, longest: int) -> Strings:
        words = random_words(name, first, len(lengths), 1 + longest)
        bits, majority = bits_without_tie(words, lengths)
        return Strings(bits, lengths, majority[:, None], np.ones_like(lengths))


class BinMajorityInterleave(AlgorithmicSubtask):
    """The majorities of three strings of bits, whose bits take turns in the input."""

    name = "bin_majority_interleave"
    answer_symbols = 2
    answer_size = least = STRANDS

    def possible_lengths(self, lengths: Ids, shortest: int, longest: int) -> Ids:
        """The nearest multiples of three; where one is out of bounds, the next within them."""
        nearest = (lengths + 1) // STRANDS * STRANDS
        nearest = np.where(nearest > longest, nearest - STRANDS, nearest)
        return np.where(nearest < shortest, nearest + STRANDS, nearest)

    def strings(self, name: Name, first: int, lengths: Ids, longest: int) -> Strings:
        count, width = len(lengths), longest // STRANDS
        words = random_words(name, first, count, STRANDS * (1 + width))
        strands = [
            bits_without_tie(part, lengths // STRANDS) for part in np.split(words, STRANDS, axis=1)
        ]
        inputs = np.stack([bits for bits, _ in strands], axis=2).reshape(count, -1)
        answers = np.stack([majority for _, majority in strands], axis=1)
        return Strings(inputs, lengths, answers, np.full_like(lengths, STRANDS))


class Majority(AlgorithmicSubtask):
    """The most frequent of uniformly random letters; an input without one is drawn again."""

    name = "majority"
    answer_symbols = 26
    answer_size = 1

    def strings(self, name: Name, first: int, lengths: Ids, longest: int) -> Strings:
        inputs = np.zeros((len(lengths), longest), np.int64)
        majority = np.zeros_like(lengths)
        undecided = np.arange(len(lengths))
        attempt = 0
        while len(undecided):
            at_once = ATTEMPTS[min(attempt, len(ATTEMPTS) - 1)]
            words = self._words((*name, attempt), first, undecided, at_once * longest)
            letters = below(words, len(self.symbols)).reshape(len(undecided), at_once, longest)
            counts = self._counts(letters, lengths[undecided])
            top = np.sort(counts, axis=2)
            decided = top[:, :, -1] > top[:, :, -2]
            rows, chosen = decided.any(1), decided.argmax(1)
            found = undecided[rows]
            inputs[found] = letters[rows, chosen[rows]]
            majority[found] = counts[rows, chosen[rows]].argmax(1)
            undecided = undecided[~rows]
            attempt += 1
        return Strings(inputs, lengths, majority[:, None], np.ones_like(lengths))

    def _words(self, name: Name, first: int, rows: Ids, words: int) -> Words:
        low, high = int(rows[0]), int(rows[-1]) + 1
        if 4 * len(rows) > high - low:
            return random_words(name, first + low, high - low, words)[rows - low]
        return np.concatenate([random_words(name, first + int(row), 1, words) for row in rows])

    def _counts(self, letters: Ids, lengths: Ids) -> Ids:
        """How often each letter occurs in inputs (count, attempts, width), up to their lengths."""
        count, attempts, width = letters.shape
        symbols = len(self.symbols)
        first = np.arange(count * attempts).reshape(count, attempts, 1) * (symbols + 1)
        counted = np.where(within(lengths, width)[:, None], letters, symbols)
        size = count * attempts * (symbols + 1)
        numbers = np.bincount((first + counted).ravel(), minlength=size)
        return numbers.reshape(count, attempts, symbols + 1)[:, :, :symbols]


Subtask = Literal[
    "addition",
    "bin_majority",
    "bin_majority_interleave",
    "majority",
    "parity",
    "repeat_copy",
    "sort",
    "unique_copy",
]
SUBTASK_DOC = (
    "What the answer to an input is. bin_majority: the more frequent of two bits. majority: the"
    " most frequent letter. bin_majority_interleave: the majorities of three strings of bits that"
    " take turns. unique_copy: the input, of different symbols. repeat_copy: the input, of two"
    " symbols. sort: the input in order. parity: whether the number of ones is even. addition: the"
    " sum of two binary numbers."
)
"""What an option of this type means."""
assert set(SUBTASKS) == set(get_args(Subtask))
