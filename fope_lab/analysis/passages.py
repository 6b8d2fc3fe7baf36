"""Cuts the text that a model reads for an analysis into rows of equal length."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fope_lab.analysis.base import Subject
from fope_lab.data.problems import DataError


class ReadsPassages:
    """Part of an analysis of a text: `sequences` passages of `length` tokens each."""

    sequences: int
    length: int

    @property
    def tokens(self) -> int:
        """The number of tokens in all sequences."""
        return self.sequences * self.length


def passages(subject: Subject, count: int, length: int) -> NDArray[np.int64]:
    """Return the tokens (count, length) of the subject's text, in order.

    Each passage begins with the tokenizer's prefix, such as Gemma's beginning-of-text token, and
    omits as many tokens at its end. Raises DataError if the prefix fills a passage, or if the
    model's vocabulary lacks a token.
    """
    prefix = np.asarray(subject.tokenizer.prefix_ids, np.int64)
    if len(prefix) >= length:
        message = f"length: found {length}, needs more than the {len(prefix)} tokens of the prefix"
        raise DataError(message)
    text = np.asarray(subject.tokens[: count * length], np.int64).reshape(count, length)
    largest, vocabulary = int(text.max()), subject.model.config.vocab_size
    if largest >= vocabulary:
        raise DataError(
            f"the text has token {largest}, but the model's vocabulary has {vocabulary} tokens"
        )
    return np.concatenate(
        (np.broadcast_to(prefix, (count, len(prefix))), text[:, : length - len(prefix)]), axis=1
    )


def words(subject: Subject, ids: NDArray[Any]) -> list[str]:
    """Return each token (n,) as printable text for a figure, with spaces and line breaks marked."""
    marks = {" ": "␣", "\n": "⏎", "\t": "⇥"}
    texts = (subject.tokenizer.decode([int(token)]) for token in ids)
    return [
        "".join(marks.get(letter, letter if letter.isprintable() else "·") for letter in text)
        for text in texts
    ]
