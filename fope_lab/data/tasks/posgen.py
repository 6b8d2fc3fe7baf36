"""PosGen: sequences whose next token is equally hard to predict at every position.

Wang et al., "Resonance RoPE", arXiv 2403.00071, §5. A sequence begins with j + k given tokens of
0 … modulus − 1. Each later token x_l is the sum, modulo the modulus, of the last k tokens and j
more:

- `recursive`: the j tokens before those;
- `cot` (chain of thought): x_0 … x_{j−1};
- `semi_recursive`: x_p … x_{p+j−1} with p = ⌊(l − j − k)/2⌋, as in the released code. (The paper
  prints p − j, which at first is before the sequence.)

In the first two, x_l − x_{l−1} is x_{l−1} minus the token that leaves the sum. Two tokens therefore
determine the next, except token j + k: x_l = 2·x_{l−1} − x_{l−1−n}, with n = j + k in `recursive`
and n = k in `cot`, which then needs nothing from the front. Models discover this: within the
trained length, the models seen so far predict nearly all tokens but j + k correctly, and that token
no better than by guessing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from itertools import combinations, cycle, islice
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from fope_lab.config.problems import Problem, unknown_name
from fope_lab.data.problems import DataError
from fope_lab.data.seeding import below, random_words

Ids = NDArray[np.int64]
Subtask = Literal["recursive", "cot", "semi_recursive"]
SUBTASKS = (
    "The earlier tokens that a token is the sum of, beside the last k. recursive: the j tokens"
    " before those. cot: the first j tokens. semi_recursive: j tokens that move half as fast."
)
"""What an option of this type means."""
MODULUS, FAR, NEAR = 17, 1, 3
"""The paper's modulus, j and k (§6.1.1)."""
MOST_BEGINNINGS = 2**32
"""With more beginnings than this, periods and splits take too long to compute."""


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
    """Return sequences of a subtask with uniformly random beginnings: (count, length), int64.

    A sequence depends only on the seed and its number, and has the same beginning in all subtasks.
    The splits for training and evaluation are in posgen_splits.py. Raises DataError for an unknown
    subtask and for sizes out of range.
    """
    if count < 1:
        raise DataError(f"found {count} sequences, needs at least 1")
    check_sizes(modulus, j, k)
    words = random_words(("posgen", modulus, j + k, seed), 0, count, j + k)
    return continued(task, below(words, modulus), length, modulus=modulus, j=j, k=k)


def continued(task: str, begun: Ids, length: int, *, modulus: int, j: int, k: int) -> Ids:
    """Continue the first j + k tokens, `begun` (count, j + k), to sequences (count, length).

    Raises DataError for an unknown subtask, and if `length` is less than j + k.
    """
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


def period(task: str, modulus: int, j: int, k: int) -> int | None:
    """Return the smallest period of all sequences of a subtask, in tokens, or None without one.

    A sequence is periodic from its first token on; in `cot` from token j on, the first that the
    last k tokens can include. `semi_recursive` has no period: a token depends on tokens ever
    further back, so that no fixed number of last tokens determines the rest. (With j = 1 each token
    is read at two successive positions. A period p of the sequence would also be a period of the
    tokens read, and if p is even, p/2 would be a period of the sequence; if p is odd, all tokens
    read are equal. So only a constant sequence is periodic.)

    Raises DataError for an unknown subtask, and as `count_beginnings` does.
    """
    if task not in STEPS:
        raise DataError(unknown_name((), "subtask", task, STEPS))
    count_beginnings(modulus, j, k)
    step = STEPS[task](j, k)
    return None if step is None else _order(step, modulus)


def _recursive_step(j: int, k: int) -> Ids:
    """Return the matrix that maps the last j + k tokens to those one position later."""
    step = np.eye(j + k, k=1, dtype=np.int64)
    step[-1] = 1
    return step


def _cot_step(j: int, k: int) -> Ids:
    """Return the matrix that keeps the sum of the first j tokens, and maps the last k tokens to
    those one position later."""
    step = np.eye(k + 1, k=1, dtype=np.int64)
    step[0] = 0
    step[0, 0] = 1
    step[-1] = 1
    return step


STEPS: Mapping[str, Callable[[int, int], Ids | None]] = {
    "recursive": _recursive_step,
    "cot": _cot_step,
    "semi_recursive": lambda j, k: None,
}
"""For each subtask, the matrix that maps the state that determines the rest of a sequence to the
next state; None where the state has no fixed size."""


def _order(step: Ids, modulus: int) -> int:
    """Return the least p > 0 with stepᵖ = 1 modulo the modulus, for an invertible matrix `step`.

    Shanks's baby-step giant-step: no orbit is longer than the number of states, so p = i·s − b,
    with s above the square root of that number, i ≤ s and b < s, where stepᵇ is one of s matrices
    in a table.
    """
    side = math.isqrt(modulus ** len(step)) + 1
    power = np.eye(len(step), dtype=np.int64) % modulus
    small = {}
    for exponent in range(side):
        small[power.tobytes()] = exponent  # the last of equal matrices makes p least
        power = power @ step % modulus
    giant = power
    for times in range(1, side + 1):
        if (rest := small.get(power.tobytes())) is not None:
            return times * side - rest
        power = power @ giant % modulus
    raise AssertionError(f"a step without an order below {side**2}")


def check_sizes(modulus: int, j: int, k: int) -> None:
    """Raise DataError, which names the field, if modulus, j or k is too small."""
    for name, value, least in (("modulus", modulus, 2), ("j", j, 1), ("k", k, 1)):
        if value < least:
            raise DataError(Problem((name,), f"found {value}, needs at least {least}"))


def count_beginnings(modulus: int, j: int, k: int) -> int:
    """Return how many different beginnings sequences can have: modulus^(j + k).

    Raises DataError as `check_sizes` does, and if there are too many beginnings to compute a period
    or a split.
    """
    check_sizes(modulus, j, k)
    # Checked before computing the power, which would take forever with a huge exponent.
    if (j + k) * math.log2(modulus) > math.log2(MOST_BEGINNINGS):
        message = (
            f"found {modulus}, which has {modulus}^{j + k} beginnings of j + k tokens, "
            f"needs at most {MOST_BEGINNINGS:,} of them"
        )
        raise DataError(Problem(("modulus",), message))
    return int(modulus ** (j + k))


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
