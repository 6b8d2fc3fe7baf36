"""Statements hidden in unrelated text, with questions at the end of the text.

All retrieval prompts share this code: the surrounding text (`Haystack`), the blocks that are
inserted into it (`Block`), and the assembly of prompts of an exact length (`hide`).
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
"""The name of a prompt, which is also the name of its stream of random numbers (seeding.py)."""


class Haystack(ABC):
    """Text in which the blocks of a prompt are hidden."""

    @abstractmethod
    def parts(self, sizes: Sequence[int], name: Name) -> list[Sequence[int]]:
        """The text before each block: piece i has `sizes[i]` tokens. `name` is the name of the
        prompt. Raises DataError if the text is too short."""


class Filler(Haystack):
    """Repeated sentences. As in YaRN's passkey prompt, they start again after each statement."""

    def __init__(self, tokenizer: Tokenizer, sentences: str) -> None:
        self._tokenizer, self._sentences = tokenizer, sentences
        self._ids: list[int] = []

    def parts(self, sizes: Sequence[int], name: Name) -> list[Sequence[int]]:
        return [self._first(size) for size in sizes]

    def _first(self, count: int) -> list[int]:
        while len(self._ids) < count:
            repeats = 2 * count // len(self._sentences.split()) + 1
            self._ids = self._tokenizer.encode(" ".join([self._sentences] * repeats))
        return self._ids[:count]


class HeldOutText(Haystack):
    """A stretch of real text from a random place for each prompt; it continues after each block.

    `tokens` (n,) may be a memory-mapped file: only the slices that a prompt needs are read.
    """

    def __init__(self, tokens: Any) -> None:
        self._tokens = tokens

    def parts(self, sizes: Sequence[int], name: Name) -> list[Sequence[int]]:
        room = len(self._tokens) - sum(sizes)
        if room < 0:
            raise DataError(
                f"the haystack needs {sum(sizes)} tokens of text, but only {len(self._tokens)} are "
                "available, and no text is used twice"
            )
        words = random_words(("haystack", *name), 0, 1, 1)
        start = int(below(words, room + 1)[0, 0])
        text = np.asarray(self._tokens[start : start + sum(sizes)], np.int64)
        ends = np.cumsum(sizes)
        return [text[end - size : end].tolist() for size, end in zip(sizes, ends, strict=True)]


class Cycle(Haystack):
    """A cycle of tokens with a random phase, so that a token reveals nothing about its position."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids

    def parts(self, sizes: Sequence[int], name: Name) -> list[Sequence[int]]:
        words = random_words(("haystack", *name), 0, 1, 1)
        phase = int(below(words, len(self._ids))[0, 0])
        pieces = []
        for size in sizes:
            pieces.append(self._ids[(phase + np.arange(size)) % len(self._ids)].tolist())
            phase += size
        return pieces


@dataclass(frozen=True)
class Block:
    """Tokens to hide in a haystack; the model has to predict the last `answer` of them."""

    ids: Sequence[int]
    answer: int = 0


class Hidden(NamedTuple):
    """A prompt: its `ids` (length,), a mask `answers` (length,) of the answers' tokens, and
    `before` (blocks,), the number of haystack tokens before each block."""

    ids: Ids
    answers: NDArray[np.bool_]
    before: Ids


def room_for(length: int, head: Sequence[int], blocks: Sequence[Block], what: str) -> int:
    """How many tokens of haystack fit into a prompt of exactly `length` tokens. Raises DataError if
    head and blocks alone are too long; `what` names the prompt in it."""
    needed = len(head) + sum(len(block.ids) for block in blocks)
    if needed > length:
        raise DataError(f"{what} needs at least {needed} tokens, but length is {length}")
    return length - needed


def hide(
    head: Sequence[int], blocks: Sequence[Block], before: Ids, haystack: Haystack, name: Name
) -> Hidden:
    """A prompt of `head` and the blocks, in order, hidden in the haystack. `before` (blocks,) is
    the number of haystack tokens up to each block; it never decreases. The last block ends the
    prompt."""
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
    """The ids (characters,) of characters that must each be a single, distinct token. Raises
    DataError if they are not; `what` names in it what needs them."""
    ids = tokenizer.encode_batch(list(characters))
    for character, tokens in zip(characters, ids, strict=True):
        if len(tokens) != 1:
            raise DataError(
                f"{what} needs {character!r} to be one token; "
                f"tokenizer {tokenizer.identity()} makes it {len(tokens)}"
            )
    flat = np.array(ids, np.int64)[:, 0]
    if len(np.unique(flat)) < len(characters):
        raise DataError(
            f"{what} needs the characters {characters!r} to be different tokens "
            f"of tokenizer {tokenizer.identity()}"
        )
    return flat
