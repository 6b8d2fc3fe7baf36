"""Random numbers that any worker can draw at any place of a named stream, without the rest.

Everything drawn for training or evaluation comes from here: counter-based Philox words, whose
values numpy guarantees for all versions (it does not for `Generator`'s methods).
"""

from __future__ import annotations

import hashlib
import json

import numpy as np
from numpy.typing import NDArray

WORDS_PER_BLOCK = 4  # Philox4x64 gives four words for each value of its counter


def random_words(
    name: tuple[str | int, ...], first: int, rows: int, words: int
) -> NDArray[np.uint64]:
    """Rows `first` … `first + rows − 1` of a stream of 64-bit words: (rows, words).

    A row is the same whichever rows are drawn with it; streams of different names share nothing.
    """
    digest = hashlib.blake2b(json.dumps(name).encode(), digest_size=16).digest()
    blocks = -(-words // WORDS_PER_BLOCK)
    source = np.random.Philox(key=int.from_bytes(digest, "little"), counter=first * blocks)
    return source.random_raw(rows * blocks * WORDS_PER_BLOCK).reshape(rows, -1)[:, :words]


def below(words: NDArray[np.uint64], limit: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """Words as integers uniform in [0, limit)."""
    return ((words >> np.uint64(11)) * 2.0**-53 * limit).astype(np.int64)


def permutation(name: tuple[str | int, ...], count: int) -> NDArray[np.int64]:
    """A uniformly random order of 0 … count − 1."""
    return np.argsort(random_words(name, 0, 1, count)[0], kind="stable")
