"""PosGen: sequences whose next token is equally hard to predict at every position.

Wang et al., "Resonance RoPE", arXiv 2403.00071, §5. A sequence begins with j + k given tokens of
0 … modulus − 1. Each later token x_l is the sum, modulo the modulus, of the last k tokens and j
more:

- `recursive`: the j tokens before those;
- `cot` (chain of thought): x_0 … x_{j−1};
- `semi_recursive`: x_p … x_{p+j−1} with p = ⌊(l − j − k)/2⌋, as in the released code. (The paper
  prints p − j, which at first is before the sequence.)

In the first two, x_l − x_{l−1} is x_{l−1} minus the token that leaves the sum: two tokens determine
the next, except token j + k. Models that were seen predict that one no better than by guessing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from itertools import combinations, cycle, islice
from typing import Annotated, ClassVar, Literal, get_args

import numpy as np

from fope_lab.config.annotations import Doc, Interval
from fope_lab.config.options import PositiveInt
from fope_lab.config.problems import Problem, unknown_name
from fope_lab.data.problems import DataError
from fope_lab.data.rows import IGNORED, EpochOrder, Rows
from fope_lab.data.seeding import Ids, Name, below, random_words
from fope_lab.data.tasks.base import Task
from fope_lab.data.tokenizers.tokenizer import Tokenizer

Subtask = Literal["recursive", "cot", "semi_recursive"]
SUBTASKS = (
    "The earlier tokens that a token is the sum of, beside the last k. recursive: the j tokens"
    " before those. cot: the first j tokens. semi_recursive: j tokens that move half as fast."
)
"""What an option of this type means."""
MODULUS, FAR, NEAR = 17, 1, 3
"""The paper's modulus, j and k (§6.1.1)."""
MOST_BEGINNINGS = 2**32
"""With more beginnings than this, splits take too long to compute."""


def generate(
    task: str,
    count: int,
    length: int,
    *,
    modulus: int = MODULUS,
    j: int = FAR,
    k: int = NEAR,
    seed: int = 0,
) -> Ids:
    """Sequences of a subtask with uniformly random beginnings: (count, length), int64.

    A sequence depends only on the seed and its number, and has the same beginning in all subtasks.
    For splits see SequenceSet. Raises DataError for an unknown subtask and for sizes out of range.
    """
    if count < 1:
        raise DataError(f"found {count} sequences, needs at least 1")
    _check_sizes(modulus, j, k)
    words = random_words(("posgen", modulus, j + k, seed), 0, count, j + k)
    return continued(task, below(words, modulus), length, modulus=modulus, j=j, k=k)


def continued(task: str, begun: Ids, length: int, *, modulus: int, j: int, k: int) -> Ids:
    """Continue the first j + k tokens, `begun` (count, j + k), to sequences (count, length). Raises
    DataError for an unknown subtask, and if `length` is less than j + k."""
    if task not in RULES:
        raise DataError(unknown_name((), "subtask", task, RULES))
    if length < j + k:
        raise DataError(f"found a length of {length}, needs at least j + k = {j + k} tokens")
    tokens = np.empty((length, len(begun)), np.int64)  # a position's tokens are contiguous
    tokens[: j + k] = begun.T
    for place in range(j + k, length):
        near = tokens[place - k : place].sum(0)
        first = RULES[task](place, j, k)
        tokens[place] = (near + tokens[first : first + j].sum(0)) % modulus
    return np.ascontiguousarray(tokens.T)


RULES: Mapping[str, Callable[[int, int, int], int]] = {
    "recursive": lambda place, j, k: place - j - k,
    "cot": lambda place, j, k: 0,
    "semi_recursive": lambda place, j, k: (place - j - k) // 2,
}
"""For each subtask, the index of the first of the j tokens that token `place` depends on in
addition to the last k."""
assert set(RULES) == set(get_args(Subtask))


def _check_sizes(modulus: int, j: int, k: int) -> None:
    for name, value, least in (("modulus", modulus, 2), ("j", j, 1), ("k", k, 1)):
        if value < least:
            raise DataError(Problem((name,), f"found {value}, needs at least {least}"))


Split = Literal["train", "validation", "test"]
HELD_OUT = 10
"""One part in this many goes to validation, and the same amount to test."""
ROUNDS = 8


@dataclass(frozen=True, kw_only=True)
class PosGenOptions:
    """Which sequences there are, as options of a sweep file."""

    subtask: Annotated[Subtask, Doc(SUBTASKS)]
    modulus: Annotated[int, Interval(ge=2), Doc("The number of different tokens.")] = MODULUS
    j: Annotated[PositiveInt, Doc("The distance of the far tokens that a token depends on.")] = FAR
    k: Annotated[PositiveInt, Doc("The number of near tokens that a token depends on.")] = NEAR
    official_leaky: Annotated[
        bool,
        Doc(
            "Whether sequences begin as in the released code, in which held-out sequences begin"
            " like training sequences."
        ),
    ] = False

    @property
    def sequence_set(self) -> SequenceSet:
        names = (field.name for field in fields(PosGenOptions))
        return SequenceSet(**{name: getattr(self, name) for name in names})


@dataclass(frozen=True, kw_only=True)
class SequenceSet(PosGenOptions):
    """The sequences of a subtask in three splits.

    With `official_leaky` they begin as in the released code: with all choices of j + k different
    tokens in ascending order (2,380 for modulus 17 and j + k = 4), repeated without end. Training
    and validation take the first of them, test those after the validation's. All beginnings of
    validation and test are therefore also in training, if it is large enough.

    Raises DataError, which names the field, if modulus, j or k allow no such task, or too many
    beginnings for a split.
    """

    def __post_init__(self) -> None:
        _check_sizes(self.modulus, self.j, self.k)
        # Checked before computing the power, which would take forever with a huge exponent.
        if self.given * math.log2(self.modulus) > math.log2(MOST_BEGINNINGS):
            message = (
                f"found {self.modulus}, which has {self.modulus}^{self.given} beginnings of j + k "
                f"tokens, needs at most {MOST_BEGINNINGS:,} of them"
            )
            raise DataError(Problem(("modulus",), message))
        if self.official_leaky and self.modulus < self.given:
            message = (
                f"needs j + k = {self.given} different tokens, but modulus {self.modulus} has fewer"
            )
            raise DataError(Problem(("official_leaky",), message))

    @property
    def given(self) -> int:
        return self.j + self.k

    def lacking(self, split: Split, count: int) -> str | None:
        """Why a split has fewer than `count` sequences; None if it has enough."""
        most = self.at_most(split, count)
        if count <= most:
            return None
        return (
            f"found {count}, needs at most {most}: of the {self.modulus**self.given} beginnings of "
            f"j + k = {self.given} tokens below {self.modulus}, no more belong to {split}"
        )

    def at_most(self, split: Split, count: int) -> int:
        """The number of sequences in a split, but at most `count`."""
        everything = self.modulus**self.given
        return count if self.official_leaky else min(count, _size(split, everything))

    def beginnings(self, split: Split, count: int) -> Ids:
        """The first j + k tokens of sequences 0 … count − 1 of a split: (count, j + k).

        Raises DataError if the split has fewer sequences.
        """
        if lacking := self.lacking(split, count):
            raise DataError(lacking)
        if self.official_leaky:
            start = count if split == "test" else 0
            every = cycle(combinations(range(self.modulus), self.given))
            return np.array(list(islice(every, start, start + count)), np.int64)
        everything, splits = self.modulus**self.given, get_args(Split)
        first = sum(_size(earlier, everything) for earlier in splits[: splits.index(split)])
        name = ("posgen beginnings", self.modulus, self.given)
        numbers = shuffled(name, np.arange(first, first + count), everything)
        return numbers[:, None] // self.modulus ** np.arange(self.given) % self.modulus

    def sequences(self, split: Split, count: int, length: int) -> Ids:
        """Sequences 0 … count − 1 of a split: (count, length). Raises DataError as `beginnings`
        does, and if `length` is less than j + k."""
        return self.continued(self.beginnings(split, count), length)

    def continued(self, begun: Ids, length: int) -> Ids:
        return continued(self.subtask, begun, length, modulus=self.modulus, j=self.j, k=self.k)


def _size(split: Split, everything: int) -> int:
    held_out = everything // HELD_OUT
    return everything - 2 * held_out if split == "train" else held_out


def shuffled(name: Name, places: Ids, count: int) -> Ids:
    """The elements at `places` of a random order of 0 … count − 1, in the places' shape.

    Nothing else of the order is computed. A Feistel network of random functions permutes the
    smallest square of at least `count` numbers, again until the result is below `count` (cycle
    walking: Black & Rogaway, "Ciphers with arbitrary finite domains", 2002).
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


VALIDATED = 1000
"""Sequences to validate on (Resonance RoPE, C.1)."""


@dataclass(frozen=True, kw_only=True)
class PosGenTask(PosGenOptions, Task):
    """Sequences of a subtask of PosGen: `examples` of them, the same for every seed.

    Their tokens are the ids 0 … `modulus` − 1, whatever these stand for in the tokenizer; the model
    has the tokenizer's vocabulary (272 ids of `byte`), and has to learn that no others ever come.
    As in the paper a sequence is `length` tokens, and all but the first j + k are learnt; the token
    after the sequence, which a row has too, is not.
    """

    task: ClassVar[str] = "posgen"
    has_held_out: ClassVar[bool] = True

    examples: Annotated[PositiveInt, Doc("The number of training sequences.")] = 10_000

    def __post_init__(self) -> None:
        if lacking := self.sequence_set.lacking("train", self.examples):
            raise DataError(Problem(("examples",), lacking))

    def check(self, tokenizer: Tokenizer, length: int) -> None:
        if self.modulus > tokenizer.vocabulary_size:
            message = (
                f"found {self.modulus}, needs at most the {tokenizer.vocabulary_size} tokens of "
                f"the tokenizer {tokenizer.identity()['tokenizer']}"
            )
            raise DataError(Problem(("modulus",), message))
        least = self.sequence_set.given + 2
        if length < least:
            raise DataError(
                f"posgen needs at least j + k + 2 = {least} tokens, so that one is learnt, and "
                f"length is {length}"
            )

    def rows(self, tokenizer: Tokenizer, length: int, seed: int) -> PosGenRows:
        self.check(tokenizer, length + 1)
        begun = self.sequence_set.beginnings("train", self.examples)
        return PosGenRows(self.sequence_set, begun, length, ("posgen", seed))

    def held_out_rows(self, tokenizer: Tokenizer, length: int) -> PosGenRows:
        """As many of the split `validation` as the paper reads, or as there are."""
        self.check(tokenizer, length + 1)
        count = self.sequence_set.at_most("validation", VALIDATED)
        begun = self.sequence_set.beginnings("validation", count)
        return PosGenRows(self.sequence_set, begun, length, ("posgen held out",))


class PosGenRows:
    """Rows of PosGen; the loss is on all but the given tokens and the one after the sequence."""

    numbered = False

    def __init__(self, of: SequenceSet, begun: Ids, length: int, order: Name) -> None:
        self._set, self._begun, self._length = of, begun, length
        self._order = EpochOrder(len(begun), order)
        self.epoch: int | None = len(begun)

    def rows(self, first: int, count: int) -> Rows:
        begun = self._begun[self._order.items(first, count)]
        ids = self._set.continued(begun, self._length + 1)
        labels = ids.copy()
        labels[:, : self._set.given] = IGNORED
        labels[:, self._length] = IGNORED
        return Rows(ids, labels, None)
