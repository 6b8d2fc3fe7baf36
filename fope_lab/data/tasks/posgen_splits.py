"""The split of PosGen's sequences into training, validation and test.

The first j + k tokens of a sequence determine the rest, so the splits share no such beginning: all
beginnings are shuffled, and eight tenths go to training, one to validation and one to test. The
splits are the same for every model, seed and subtask, and contain no beginning twice.

Only the beginnings are disjoint. Any j + k consecutive tokens of a recursive sequence are also the
beginning of another sequence, which may be in another split. The paper's own splits are the same in
this respect.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from itertools import combinations, cycle, islice
from typing import Any, Literal, Self, get_args

import numpy as np

from fope_lab.config.problems import Problem
from fope_lab.data.problems import DataError
from fope_lab.data.seeding import below, random_words
from fope_lab.data.tasks.posgen import FAR, MODULUS, NEAR, Ids, Subtask, continued, count_beginnings

Split = Literal["train", "validation", "test"]
HELD_OUT = 10
"""One part in this many goes to validation, and the same amount to test."""
ROUNDS = 8


@dataclass(frozen=True, kw_only=True)
class SequenceSet:
    """The sequences of a subtask in three splits.

    With `official_leaky` they begin as in the released code: with all choices of j + k different
    tokens in ascending order (2,380 for modulus 17 and j + k = 4), repeated without end. Training
    and validation take the first of them, test those after the validation's. All beginnings of
    validation and test are therefore also in training, if it is large enough.

    Raises DataError, which names the field, if modulus, j or k allow no such task.
    """

    subtask: Subtask
    modulus: int = MODULUS
    j: int = FAR
    k: int = NEAR
    official_leaky: bool = False

    def __post_init__(self) -> None:
        count_beginnings(self.modulus, self.j, self.k)
        if self.official_leaky and self.modulus < self.given:
            message = (
                f"needs j + k = {self.given} different tokens, but modulus {self.modulus} has fewer"
            )
            raise DataError(Problem(("official_leaky",), message))

    @classmethod
    def of(cls, options: Any) -> Self:
        """Return the set that an object describes by attributes of the same names."""
        return cls(**{field.name: getattr(options, field.name) for field in fields(cls)})

    @property
    def given(self) -> int:
        """The number of initial tokens that determine a sequence: j + k."""
        return self.j + self.k

    def lacking(self, split: Split, count: int) -> str | None:
        """Return why a split has fewer than `count` sequences, or None if it has enough."""
        most = self.at_most(split, count)
        if count <= most:
            return None
        return (
            f"found {count}, needs at most {most}: of the {self.modulus**self.given} beginnings of "
            f"j + k = {self.given} tokens below {self.modulus}, no more belong to {split}"
        )

    def at_most(self, split: Split, count: int) -> int:
        """Return the number of sequences in a split, but at most `count`."""
        everything = self.modulus**self.given
        return count if self.official_leaky else min(count, _size(split, everything))

    def beginnings(self, split: Split, count: int) -> Ids:
        """Return the first j + k tokens of sequences 0 … count − 1 of a split: (count, j + k).

        Raises DataError if the split has fewer sequences.
        """
        if lacking := self.lacking(split, count):
            raise DataError(lacking)
        draw = _leaky if self.official_leaky else _disjoint
        return draw(split, count, self.modulus, self.given)

    def sequences(self, split: Split, count: int, length: int) -> Ids:
        """Return sequences 0 … count − 1 of a split: (count, length).

        Raises DataError as `beginnings` does, and if `length` is less than j + k.
        """
        return self.continued(self.beginnings(split, count), length)

    def continued(self, begun: Ids, length: int) -> Ids:
        """Continue beginnings (count, j + k) to sequences (count, length)."""
        return continued(self.subtask, begun, length, modulus=self.modulus, j=self.j, k=self.k)


def _disjoint(split: Split, count: int, modulus: int, given: int) -> Ids:
    everything = modulus**given
    first = _first(split, everything)
    name = ("posgen beginnings", modulus, given)
    numbers = shuffled(name, np.arange(first, first + count), everything)
    return numbers[:, None] // modulus ** np.arange(given) % modulus


def _leaky(split: Split, count: int, modulus: int, given: int) -> Ids:
    first = count if split == "test" else 0
    every = cycle(combinations(range(modulus), given))
    return np.array(list(islice(every, first, first + count)), np.int64)


def _size(split: Split, everything: int) -> int:
    """Return how many of all beginnings belong to a split."""
    held_out = everything // HELD_OUT
    return everything - 2 * held_out if split == "train" else held_out


def _first(split: Split, everything: int) -> int:
    """Return the index of a split's first beginning in the order of all beginnings."""
    splits = get_args(Split)
    return sum(_size(earlier, everything) for earlier in splits[: splits.index(split)])


def shuffled(name: tuple[str | int, ...], places: Ids, count: int) -> Ids:
    """Return the elements at `places` of a random order of 0 … count − 1, in the places' shape.

    Nothing else of the order is computed. A Feistel network of random functions permutes the
    smallest square of at least `count` numbers; it is applied until its result is below `count`
    (cycle walking: Black & Rogaway, "Ciphers with arbitrary finite domains", 2002).
    """
    side = math.isqrt(count - 1) + 1
    functions = below(random_words(name, 0, ROUNDS, side), side)
    elements = places.copy()
    walking = np.arange(len(elements))
    while len(walking):
        left, right = np.divmod(elements[walking], side)
        for function in functions:
            left, right = right, (left + function[right]) % side
        elements[walking] = left * side + right
        walking = walking[elements[walking] >= count]
    return elements
