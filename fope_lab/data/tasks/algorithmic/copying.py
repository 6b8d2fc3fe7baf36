"""Copying and sorting: the answer has the symbols of the input."""

from __future__ import annotations

import numpy as np

from fope_lab.data.seeding import below, random_words
from fope_lab.data.tasks.algorithmic.subtask import AlgorithmicSubtask, Ids, Name, Strings, within


class _SameSymbols(AlgorithmicSubtask):
    """A task whose answers are as long as the inputs."""

    def answer_length(self, length: int) -> int:
        return length


class _DifferentSymbols(_SameSymbols):
    """A task whose inputs are different symbols in random order."""

    @property
    def most(self) -> int:
        """As many as there are symbols."""
        return len(self.symbols)

    def different(self, name: Name, first: int, lengths: Ids, longest: int) -> Ids:
        """Return `longest` different symbols (count, longest) for each length (count,)."""
        words = random_words(name, first, len(lengths), len(self.symbols))
        return np.argsort(words, axis=1)[:, :longest]


class UniqueCopy(_DifferentSymbols):
    """The input again; its symbols are different."""

    name = "unique_copy"
    answer_symbols = 150

    def strings(self, name: Name, first: int, lengths: Ids, longest: int) -> Strings:
        inputs = self.different(name, first, lengths, longest)
        return Strings(inputs, lengths, inputs, lengths)


class Sort(_DifferentSymbols):
    """The input in ascending order; its numbers are different."""

    name = "sort"
    answer_symbols = 150

    def strings(self, name: Name, first: int, lengths: Ids, longest: int) -> Strings:
        inputs = self.different(name, first, lengths, longest)
        ordered = np.sort(np.where(within(lengths, longest), inputs, len(self.symbols)), axis=1)
        return Strings(inputs, lengths, ordered, lengths)


class RepeatCopy(_SameSymbols):
    """The input again; its symbols are uniformly one of two."""

    name = "repeat_copy"
    answer_symbols = 2

    def strings(self, name: Name, first: int, lengths: Ids, longest: int) -> Strings:
        words = random_words(name, first, len(lengths), longest)
        inputs = below(words, len(self.symbols))
        return Strings(inputs, lengths, inputs, lengths)
