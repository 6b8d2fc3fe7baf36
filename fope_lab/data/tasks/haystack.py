"""Statements hidden in unrelated text, with questions at the end of the text.

All retrieval prompts share this code: the surrounding text (`Haystack`), the blocks that are
inserted into it (`Block`), and the assembly of prompts of an exact length (`hide`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fope_lab.data.problems import DataError
from fope_lab.data.seeding import Ids, Name, below, random_words
from fope_lab.data.tokenizers.tokenizer import Tokenizer

Haystack = Callable[[Sequence[int], Name], list[list[int]]]
"""Gives the text before each block of the prompt with a name: piece i has as many tokens as the
i-th size. Raises DataError if the text is too short."""


def filler(tokenizer: Tokenizer, sentences: str) -> Haystack:
    """Repeated sentences. As in YaRN's passkey prompt, they start again after each statement."""
    ids: list[int] = []

    def parts(sizes: Sequence[int], name: Name) -> list[list[int]]:
        while len(ids) < max(sizes):
            repeats = 2 * max(sizes) // len(sentences.split()) + 1
            ids[:] = tokenizer.encode(" ".join([sentences] * repeats))
        return [ids[:size] for size in sizes]

    return parts


def held_out_text(tokens: Any) -> Haystack:
    """A stretch of real text from a random place for each prompt; it continues after each block.

    `tokens` (n,) may be a memory-mapped file: only the slices that a prompt needs are read.
    """

    def parts(sizes: Sequence[int], name: Name) -> list[list[int]]:
        needed = sum(sizes)
        if needed > len(tokens):
            raise DataError(
                f"the haystack needs {needed} tokens of text, but only {len(tokens)} are "
                "available, and no text is used twice"
            )
        words = random_words(("haystack", *name), 0, 1, 1)
        start = int(below(words, len(tokens) - needed + 1)[0, 0])
        return _split(np.asarray(tokens[start : start + needed], np.int64), sizes)

    return parts


def cycle(ids: Ids) -> Haystack:
    """A cycle of tokens with a random phase, so that a token reveals nothing about its position."""

    def parts(sizes: Sequence[int], name: Name) -> list[list[int]]:
        phase = below(random_words(("haystack", *name), 0, 1, 1), len(ids))[0, 0]
        return _split(ids[(phase + np.arange(sum(sizes))) % len(ids)], sizes)

    return parts


def _split(ids: Ids, sizes: Sequence[int]) -> list[list[int]]:
    return [part.tolist() for part in np.split(ids, np.cumsum(sizes)[:-1])]


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
    parts = haystack(np.diff(before, prepend=0).tolist(), name)
    ids, answers = list(head), [False] * len(head)
    for part, block in zip(parts, blocks, strict=True):
        ids += [*part, *block.ids]
        answers += [False] * (len(ids) - len(answers) - block.answer) + [True] * block.answer
    return Hidden(np.array(ids, np.int64), np.array(answers), before)


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
