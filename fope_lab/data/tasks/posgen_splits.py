"""Which sequences of PosGen are for training, for validation and for test.

A sequence follows from its first j + k tokens, so no two splits share any of these: of all there
are, in a random order, the first eight tenths are for training, then one for validation and one for
test. They are the same for every model, seed and subtask; none comes twice.
Only beginnings are disjoint. Any j + k tokens of a recursive sequence are the beginning of another
one, which may be of another split: the paper's own splits are no different.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations, cycle, islice
from typing import Literal

import numpy as np

from fope_lab.config.problems import Problem
from fope_lab.data.problems import DataError
from fope_lab.data.seeding import below, random_words
from fope_lab.data.tasks.posgen import FAR, MODULUS, NEAR, Ids, Subtask, continued, count_beginnings

Split = Literal["train", "validation", "test"]
HELD_OUT = 10
"""One part in this many is for validation, and as much for test."""
ROUNDS = 8


@dataclass(frozen=True, kw_only=True)
class SequenceSet:
    """The sequences of a subtask in three splits.

    With `official_leaky` they begin as the released code's: with all choices of j + k different
    tokens in ascending order (2,380 for modulus 17 and j + k = 4), again and again, of which every
    split takes the first ones, test after as many as are validated. So all beginnings of validation
    and test are of training too, if that has as many.
    Raises DataError, which says of which field, if there is no such task.
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
                f"needs j + k = {self.given} different tokens, and modulus {self.modulus} has fewer"
            )
            raise DataError(Problem(("official_leaky",), message))

    @property
    def given(self) -> int:
        """How many tokens a sequence begins with, from which all others follow: j + k."""
        return self.j + self.k

    def lacking(self, split: Split, count: int) -> str | None:
        """Why a split has no `count` sequences; None if it has."""
        most = self.at_most(split, count)
        if count <= most:
            return None
        return (
            f"found {count}, needs at most {most}: of the {self.modulus**self.given} beginnings of "
            f"j + k = {self.given} tokens below {self.modulus}, no more are for {split}"
        )

    def at_most(self, split: Split, count: int) -> int:
        """How many sequences a split has, `count` at most."""
        everything = self.modulus**self.given
        return count if self.official_leaky else min(count, _size(split, everything))

    def beginnings(self, split: Split, count: int) -> Ids:
        """The first j + k tokens of sequences 0 … count − 1 of a split: (count, j + k).

        Raises DataError if there are not as many.
        """
        if lacking := self.lacking(split, count):
            raise DataError(lacking)
        return _BEGINNINGS[self.official_leaky](split, count, self.modulus, self.given)

    def sequences(self, split: Split, count: int, length: int) -> Ids:
        """Sequences 0 … count − 1 of a split: (count, length). Raises DataError as `beginnings`
        does, and if `length` is less than j + k."""
        return self.continued(self.beginnings(split, count), length)

    def continued(self, begun: Ids, length: int) -> Ids:
        """Sequences from their beginnings (count, j + k): (count, length)."""
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


_BEGINNINGS: Mapping[bool, Callable[[Split, int, int, int], Ids]] = {
    False: _disjoint,
    True: _leaky,
}


def _size(split: Split, everything: int) -> int:
    """How many of all beginnings are for a split."""
    held_out = everything // HELD_OUT
    return everything - 2 * held_out if split == "train" else held_out


def _first(split: Split, everything: int) -> int:
    """Where a split begins in the order of all beginnings."""
    before: Mapping[Split, tuple[Split, ...]] = {
        "train": (),
        "validation": ("train",),
        "test": ("train", "validation"),
    }
    return sum(_size(one, everything) for one in before[split])


def shuffled(name: tuple[str | int, ...], places: Ids, count: int) -> Ids:
    """What stands at these places, all below `count`, of a random order of 0 … count − 1.

    No more of the order is computed: a Feistel network of random functions permutes a square that
    is just large enough, and is walked until it comes back to a number below `count` (Black &
    Rogaway, "Ciphers with arbitrary finite domains", 2002).
    """
    side = math.isqrt(count - 1) + 1
    functions = below(random_words(name, 0, ROUNDS, side), side)
    found = places.copy()
    walking = np.arange(len(found))
    while len(walking):
        left, right = np.divmod(found[walking], side)
        for function in functions:
            left, right = right, (left + function[right]) % side
        found[walking] = left * side + right
        walking = walking[found[walking] >= count]
    return found
