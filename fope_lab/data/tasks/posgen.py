"""PosGen: sequences whose next token is as hard to tell at any position.

Wang et al., "Resonance RoPE", arXiv 2403.00071, §5. A sequence begins with j + k given tokens of
0 … modulus − 1; from then on x_l is the sum, modulo the modulus, of the last k tokens and j more:

- `recursive`: the j before those;
- `cot` (chain of thought): x_0 … x_{j−1};
- `semi_recursive`: x_p … x_{p+j−1} with p = ⌊(l − j − k)/2⌋. (As released. The paper prints p less
  j, which at first is no token.)

In the first two, x_l − x_{l−1} is x_{l−1} less the token that leaves the sum. So but for token
j + k, two tokens tell the next: x_l = 2·x_{l−1} − x_{l−1−n}, with n = j + k in `recursive` and k in
`cot`, which then needs nothing of the front. Models find that out: within the trained length, those
seen are right about nearly all tokens but j + k, and there no better than by guessing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fope_lab.config.problems import Problem, unknown_name
from fope_lab.data.problems import DataError
from fope_lab.data.seeding import below, random_words

Ids = NDArray[np.int64]
Subtask = Literal["recursive", "cot", "semi_recursive"]
MODULUS, FAR, NEAR = 17, 1, 3
"""The paper's modulus, j and k (§6.1.1)."""
MOST_BEGINNINGS = 2**32
"""With more of them neither a period nor a split is found at once."""


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
    """Sequences of a subtask with uniformly drawn beginnings: (count, length), int64.

    A sequence follows from the seed and its number alone, and begins alike in all subtasks. The
    splits of training and evaluation are posgen_splits.py's. Raises DataError.
    """
    if count < 1:
        raise DataError(f"found {count} sequences, needs at least 1")
    check_sizes(modulus, j, k)
    words = random_words(("posgen", modulus, j + k, seed), 0, count, j + k)
    return continued(task, below(words, modulus), length, modulus=modulus, j=j, k=k)


def continued(task: str, begun: Ids, length: int, *, modulus: int, j: int, k: int) -> Ids:
    """Sequences from their first j + k tokens, `begun` (count, j + k): (count, length).

    Raises DataError for an unknown subtask, and if `length` holds less than their beginnings.
    """
    if task not in RULES:
        raise DataError(unknown_name((), "subtask", task, RULES))
    if length < j + k:
        raise DataError(f"found a length of {length}, needs at least j + k = {j + k} tokens")
    tokens = np.empty((length, len(begun)), np.int64)  # a position's tokens lie side by side
    tokens[: j + k] = begun.T
    for place in range(j + k, length):
        near = tokens[place - k : place].sum(0)
        first = RULES[task](place, j, k)
        tokens[place] = (near + tokens[first : first + j].sum(0)) % modulus
    return np.ascontiguousarray(tokens.T)


def _just_before(place: int, j: int, k: int) -> int:
    return place - j - k


def _at_the_front(place: int, j: int, k: int) -> int:
    return 0


def _half_way(place: int, j: int, k: int) -> int:
    return (place - j - k) // 2


RULES: Mapping[str, Callable[[int, int, int], int]] = {
    "recursive": _just_before,
    "cot": _at_the_front,
    "semi_recursive": _half_way,
}
"""Where the j tokens begin that token `place` depends on beside the last k."""
assert set(RULES) == set(get_args(Subtask))


def period(task: str, modulus: int, j: int, k: int) -> int | None:
    """After how many tokens every sequence of a subtask repeats itself, at the least.

    From the first token on; in `cot` from token j on, which is where the tokens that stay out of
    reach of the last k end. None for `semi_recursive`: what a token depends on lies ever further
    back, so that no number of last tokens decides what follows. (With j = 1 the token read lasts
    for two positions. A period p would be of the tokens read too, and so p/2 one of the sequence
    if p is even; with p odd, all tokens read are the same. So only a constant sequence has one.)
    Raises DataError.
    """
    if task not in STEPS:
        raise DataError(unknown_name((), "subtask", task, STEPS))
    count_beginnings(modulus, j, k)
    step = STEPS[task](j, k)
    return None if step is None else _order(step, modulus)


def _recursive_step(j: int, k: int) -> Ids | None:
    """The last j + k tokens to the next ones."""
    step = np.eye(j + k, k=1, dtype=np.int64)
    step[-1] = 1
    return step


def _cot_step(j: int, k: int) -> Ids | None:
    """The sum of the first j tokens, which stays, and the last k tokens to the next ones."""
    step = np.eye(k + 1, k=1, dtype=np.int64)
    step[0] = 0
    step[0, 0] = 1
    step[-1] = 1
    return step


def _no_step(j: int, k: int) -> Ids | None:
    return None


STEPS: Mapping[str, Callable[[int, int], Ids | None]] = {
    "recursive": _recursive_step,
    "cot": _cot_step,
    "semi_recursive": _no_step,
}
"""What takes the state that decides all that follows to the next, as a matrix, if there is one."""


def _order(step: Ids, modulus: int) -> int:
    """The least p > 0 with stepᵖ = 1 modulo the modulus, for a matrix that can be inverted.

    Shanks's giant steps: no orbit is longer than there are states, so that p = i·s − b with s above
    the root of their number, i ≤ s and b < s, and stepᵇ is one of s matrices that are kept.
    """
    side = math.isqrt(modulus ** len(step)) + 1
    power = np.eye(len(step), dtype=np.int64) % modulus
    small = {}
    for exponent in range(side):
        small[power.tobytes()] = exponent  # of equal ones the last, which makes p least
        power = power @ step % modulus
    giant = power
    for times in range(1, side + 1):
        if (rest := small.get(power.tobytes())) is not None:
            return times * side - rest
        power = power @ giant % modulus
    raise AssertionError(f"a step without an order below {side**2}")


def check_sizes(modulus: int, j: int, k: int) -> None:
    """Raises DataError, which says of which of the three, if there is no such task."""
    for name, value, least in (("modulus", modulus, 2), ("j", j, 1), ("k", k, 1)):
        if value < least:
            raise DataError(Problem((name,), f"found {value}, needs at least {least}"))


def count_beginnings(modulus: int, j: int, k: int) -> int:
    """How many beginnings sequences can have. Raises DataError as check_sizes does, and if they are
    too many for what depends on all of them, a period or a split."""
    check_sizes(modulus, j, k)
    # Before the power, which would take for ever with a huge exponent.
    if (j + k) * math.log2(modulus) > math.log2(MOST_BEGINNINGS):
        message = (
            f"found {modulus}, which has {modulus}^{j + k} beginnings of j + k tokens, "
            f"needs at most {MOST_BEGINNINGS:,} of them"
        )
        raise DataError(Problem(("modulus",), message))
    return int(modulus ** (j + k))
