"""Statements hidden in text that has nothing to do with them, and questions at its end.

What prompts of retrieval share: the text around (`Haystack`), the blocks that are put into it, and
exact lengths (`hide`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fope_lab.data.problems import DataError
from fope_lab.data.seeding import below, random_words
from fope_lab.data.tokenizers.tokenizer import Tokenizer

Ids = NDArray[np.int64]
Name = tuple[str | int, ...]
"""Of a prompt: what is drawn for it is drawn from a stream of this name (seeding.py)."""


class Haystack(ABC):
    """Text to hide something in."""

    @abstractmethod
    def parts(self, sizes: Sequence[int], name: Name) -> list[Sequence[int]]:
        """The text before, between and after what is hidden, in pieces of so many tokens.

        Raises DataError if there is not so much text.
        """


class Filler(Haystack):
    """Sentences again and again; as in YaRN's passkey they start anew after each statement."""

    def __init__(self, tokenizer: Tokenizer, sentences: str) -> None:
        self._tokenizer, self._sentences = tokenizer, sentences
        self._ids: list[int] = []

    def parts(self, sizes: Sequence[int], name: Name) -> list[Sequence[int]]:
        """See Haystack; every prompt has the same."""
        return [self._first(size) for size in sizes]

    def _first(self, count: int) -> list[int]:
        while len(self._ids) < count:
            repeats = 2 * count // len(self._sentences.split()) + 1
            self._ids = self._tokenizer.encode(" ".join([self._sentences] * repeats))
        return self._ids[:count]


class HeldOutText(Haystack):
    """A stretch of real text, from a place drawn for each prompt; it goes on after a statement.

    `tokens` (n,) are sliced, and may lie in a file.
    """

    def __init__(self, tokens: Any) -> None:
        self._tokens = tokens

    def parts(self, sizes: Sequence[int], name: Name) -> list[Sequence[int]]:
        """See Haystack."""
        room = len(self._tokens) - sum(sizes)
        if room < 0:
            raise DataError(
                f"the haystack needs {sum(sizes)} tokens of text, and there are "
                f"{len(self._tokens)}; nothing is read twice"
            )
        words = random_words(("haystack", *name), 0, 1, 1)
        start = int(below(words, room + 1)[0, 0])
        text = np.asarray(self._tokens[start : start + sum(sizes)], np.int64)
        ends = np.cumsum(sizes)
        return [text[end - size : end].tolist() for size, end in zip(sizes, ends, strict=True)]


class Cycle(Haystack):
    """Some tokens in turn, from one that is drawn, so that they tell nothing of the position."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids

    def parts(self, sizes: Sequence[int], name: Name) -> list[Sequence[int]]:
        """See Haystack."""
        words = random_words(("haystack", *name), 0, 1, 1)
        phase = int(below(words, len(self._ids))[0, 0])
        found = []
        for size in sizes:
            found.append(self._ids[(phase + np.arange(size)) % len(self._ids)].tolist())
            phase += size
        return found


@dataclass(frozen=True)
class Block:
    """Tokens to hide, of which the last `answer` are to be predicted."""

    ids: Sequence[int]
    answer: int = 0


class Hidden(NamedTuple):
    """A prompt: its ids (length,), which of them are answers, and for each block how much of the
    haystack lies before it, in tokens."""

    ids: Ids
    answers: NDArray[np.bool_]
    before: Ids


def room_for(length: int, head: Sequence[int], blocks: Sequence[Block], what: str) -> int:
    """How many tokens of haystack a prompt of exactly `length` tokens has.

    Raises DataError, which names the prompt by `what`, if it has not even room for the blocks.
    """
    needed = len(head) + sum(len(block.ids) for block in blocks)
    if needed > length:
        raise DataError(f"{what} needs at least {needed} tokens, and length is {length}")
    return length - needed


def hide(
    head: Sequence[int], blocks: Sequence[Block], before: Ids, haystack: Haystack, name: Name
) -> Hidden:
    """`head`, then the blocks in their order, `before` (blocks,) tokens of haystack before each.

    `before` never falls; the last block ends the prompt.
    """
    parts = haystack.parts(np.diff(before, prepend=0).tolist(), name)
    ids = list(head)
    answers = []
    for part, block in zip(parts, blocks, strict=True):
        ids += [*part, *block.ids]
        answers.append((len(ids) - block.answer, len(ids)))
    mask = np.zeros(len(ids), np.bool_)
    for start, end in answers:
        mask[start:end] = True
    return Hidden(np.array(ids, np.int64), mask, before)


def single_ids(tokenizer: Tokenizer, characters: str, what: str) -> Ids:
    """The ids of characters that must each be one token, different from the others'.

    Raises DataError, in which `what` needs them.
    """
    ids = tokenizer.encode_batch(list(characters))
    for character, found in zip(characters, ids, strict=True):
        if len(found) != 1:
            raise DataError(
                f"{what} needs {character!r} to be one token; "
                f"tokenizer {tokenizer.identity()} makes it {len(found)}"
            )
    flat = np.array(ids, np.int64)[:, 0]
    if len(np.unique(flat)) < len(characters):
        raise DataError(
            f"{what} needs the characters {characters!r} to be different tokens "
            f"of tokenizer {tokenizer.identity()}"
        )
    return flat
