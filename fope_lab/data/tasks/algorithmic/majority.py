"""The majority of a string's symbols: of bits, of letters, and of three strings of bits at once."""

from __future__ import annotations

import numpy as np

from fope_lab.data.seeding import below, random_words
from fope_lab.data.tasks.algorithmic.subtask import (
    AlgorithmicSubtask,
    Ids,
    Name,
    Strings,
    Words,
    shuffled_bits,
    within,
)

STRANDS = 3
"""The strings of bits that are interleaved."""
ATTEMPTS = (1, 8, 64)
"""How many inputs are drawn at a time until one has a majority; the last number repeats."""


def bits_without_tie(words: Words, lengths: Ids) -> tuple[Ids, Ids]:
    """Return bits (count, width) and their majority (count,).

    The number of zeros is uniform from 0 to the length, except half of it. `words` is
    (count, 1 + width).
    """
    ties = lengths % 2 == 0
    zeros = below(words[:, 0], lengths + 1 - ties)
    zeros += ties & (zeros >= lengths // 2)  # skips the tie
    ones = lengths - zeros
    return shuffled_bits(words[:, 1:], lengths, ones), (ones > zeros).astype(np.int64)


class BinMajority(AlgorithmicSubtask):
    """The majority of bits, which are never tied."""

    name = "bin_majority"
    answer_symbols = 2

    def answer_length(self, length: int) -> int:
        return 1

    def strings(self, name: Name, first: int, lengths: Ids, longest: int) -> Strings:
        words = random_words(name, first, len(lengths), 1 + longest)
        bits, majority = bits_without_tie(words, lengths)
        return Strings(bits, lengths, majority[:, None], np.ones_like(lengths))


class BinMajorityInterleave(AlgorithmicSubtask):
    """The majorities of three strings of bits, whose bits take turns in the input."""

    name = "bin_majority_interleave"
    answer_symbols = 2
    least = STRANDS

    def answer_length(self, length: int) -> int:
        return STRANDS

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

    def answer_length(self, length: int) -> int:
        return 1

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
        """The random words of some of the strings after number `first`."""
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
