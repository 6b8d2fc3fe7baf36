"""Named streams of random numbers, which any worker can read at any position.

All random numbers for training and evaluation come from here. They are counter-based Philox words:
numpy guarantees their values for all versions, which it does not for the methods of `Generator`.
"""

from __future__ import annotations

import hashlib
import json

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Words = NDArray[np.uint64]
"""Random 64-bit words, (rows, words)."""
Name = tuple[str | int, ...]
"""The name of a stream of random numbers."""
WORDS_PER_BLOCK = 4  # Philox4x64 gives four words for each value of its counter


def random_words(name: Name, first: int, rows: int, words: int) -> Words:
    """Rows `first` … `first + rows − 1` of a stream of 64-bit words: (rows, words). A row does not
    depend on the others; streams with different names are independent."""
    digest = hashlib.blake2b(json.dumps(name).encode(), digest_size=16).digest()
    blocks = -(-words // WORDS_PER_BLOCK)
    source = np.random.Philox(key=int.from_bytes(digest, "little"), counter=first * blocks)
    return source.random_raw(rows * blocks * WORDS_PER_BLOCK).reshape(rows, -1)[:, :words]


def below(words: Words, limit: Ids | int) -> Ids:
    """Map random words to integers uniform in [0, limit), in the words' shape."""
    return ((words >> np.uint64(11)) * 2.0**-53 * limit).astype(np.int64)


def permutation(name: Name, count: int) -> Ids:
    """A uniformly random permutation of 0 … count − 1: (count,)."""
    return np.argsort(random_words(name, 0, 1, count)[0], kind="stable")
