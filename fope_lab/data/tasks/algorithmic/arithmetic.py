"""Arithmetic of bits: the parity of a string, and the sum of two binary numbers."""

from __future__ import annotations

import numpy as np

from fope_lab.data.seeding import below, random_words
from fope_lab.data.tasks.algorithmic.subtask import (
    AlgorithmicSubtask,
    Ids,
    Name,
    Strings,
    shuffled_bits,
    within,
)


class Parity(AlgorithmicSubtask):
    """Whether the number of ones is even (e) or odd (o); it is uniform from 0 to the length."""

    name = "parity"
    answer_symbols = 2
    least = 0

    def answer_length(self, length: int) -> int:
        return 1

    def strings(self, name: Name, first: int, lengths: Ids, longest: int) -> Strings:
        words = random_words(name, first, len(lengths), 1 + longest)
        ones = below(words[:, 0], lengths + 1)
        answers = self.symbols.index("e") + ones[:, None] % 2
        return Strings(
            shuffled_bits(words[:, 1:], lengths, ones), lengths, answers, lengths * 0 + 1
        )


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
        a = _numbers(below(words[:, 1 : 1 + longest], 2), left)
        b = _numbers(below(words[:, 1 + longest :], 2), right)
        places = np.broadcast_to(np.arange(longest), a.shape)
        after = left[:, None] + 1
        behind = np.take_along_axis(b, np.clip(places - after, 0, None), axis=1)
        inputs = np.where(places < left[:, None], a, behind)
        np.put_along_axis(inputs, left[:, None], self.symbols.index("+"), axis=1)
        np.put_along_axis(inputs, lengths[:, None] - 1, self.symbols.index("="), axis=1)
        answers, answer_lengths = _sum(a, left, b, right)
        return Strings(inputs, lengths, answers, answer_lengths)


def _numbers(bits: Ids, lengths: Ids) -> Ids:
    """The bits (count, width) of numbers of these lengths (count,), the highest first."""
    bits[:, 0] |= lengths > 1
    return bits


def _sum(a: Ids, left: Ids, b: Ids, right: Ids) -> tuple[Ids, Ids]:
    """The bits (count, width) of the sums of two numbers, and how many there are (count,)."""
    width = a.shape[1]
    low_first = [_reversed(a, left), _reversed(b, right)]
    total = low_first[0] + low_first[1]
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
