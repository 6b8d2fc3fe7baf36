"""The text that a model reads for an analysis, as rows of equal length."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fope_lab.analysis.base import Subject
from fope_lab.data.problems import DataError


def passages(subject: Subject, count: int, length: int) -> NDArray[np.int64]:
    """Tokens (count, length) of the subject's text, in its order.

    Each passage begins with what the tokenizer puts before every text (Gemma's beginning of text);
    what is left of its part of the text is not read. Raises DataError if a passage has no room, or
    the model's vocabulary lacks a token.
    """
    prefix = np.asarray(subject.tokenizer.prefix_ids, np.int64)
    if len(prefix) >= length:
        message = f"length {length} has no room behind the {len(prefix)} tokens of every beginning"
        raise DataError(message)
    text = np.asarray(subject.tokens[: count * length], np.int64).reshape(count, length)
    largest, vocabulary = int(text.max()), subject.model.config.vocab_size
    if largest >= vocabulary:
        raise DataError(f"the text has token {largest}, and the model knows {vocabulary} tokens")
    return np.concatenate(
        (np.broadcast_to(prefix, (count, len(prefix))), text[:, : length - len(prefix)]), axis=1
    )


def words(subject: Subject, ids: NDArray[Any]) -> list[str]:
    """Each token (n,) as text for a figure: spaces and line breaks marked, the rest printable."""
    marks = {" ": "␣", "\n": "⏎", "\t": "⇥"}
    texts = (subject.tokenizer.decode([int(token)]) for token in ids)
    return [
        "".join(marks.get(letter, letter if letter.isprintable() else "·") for letter in text)
        for text in texts
    ]
