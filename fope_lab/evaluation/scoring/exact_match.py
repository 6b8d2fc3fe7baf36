"""Whether greedy decoding would answer prompts exactly, from at most one forward pass for each.

Greedy decoding gives an answer exactly when each of its tokens is the argmax where the tokens
before it are the right ones. What prompts have in common is read once (shared_prefix.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fope_lab.evaluation.scoring.batches import Result, Work, batches_of, one_after_another
from fope_lab.evaluation.scoring.shared_prefix import Reader, lexicographic, reader_of


class Question(Protocol):
    """A prompt and its answer: `input_ids` (length,) ends with `answer_ids`."""

    @property
    def input_ids(self) -> NDArray[np.int64]:
        """Prompt and answer as one sequence of ids."""

    @property
    def answer_ids(self) -> NDArray[np.int64]:
        """The tokens of the answer, which end the sequence."""


def exact_match(
    model: Any,
    questions: Sequence[Question],
    *,
    batch_tokens: int = 16_384,
    progress: Callable[[int], None] = lambda done: None,
    work: Work = one_after_another,
) -> NDArray[np.bool_]:
    """Which questions (any lengths) a model answers right: (questions,), in their order.

    `model.hidden(input_ids)` is (batch, length, …), and `model.head` of a part of it is that part's
    logits (batch, part, vocabulary). About `batch_tokens` are read at once, a cache's included;
    `progress` takes how many questions are answered, and `work` gives the results of batches. What
    the model itself raises is an error, never a wrong answer.
    """
    by_length = sorted(range(len(questions)), key=lambda i: len(questions[i].input_ids))
    reader = reader_of(model)
    batches: list[list[int]] = []
    for length, alike in groupby(by_length, key=lambda i: len(questions[i].input_ids)):
        unsorted = list(alike)
        same = [unsorted[i] for i in lexicographic([questions[i].input_ids for i in unsorted])]
        batches += batches_of(same, max(1, batch_tokens // length))

    def compute(batch: list[int]) -> Result:
        return (_score(model, reader, [questions[i] for i in batch]),)

    def skip(batch: list[int], result: Result | None) -> None:
        reader.skip(*_read([questions[i] for i in batch]))

    right = np.zeros(len(questions), np.bool_)
    done = 0
    for batch, (found,) in zip(batches, work(batches, compute, skip), strict=True):
        right[batch] = found
        done += len(batch)
        progress(done)
    return right


def _read(questions: Sequence[Question]) -> tuple[NDArray[np.int64], int]:
    """What a model reads of several questions of one length, (batch, length − 1), and of how many
    last tokens its states are wanted."""
    ids = np.stack([one.input_ids for one in questions])
    return ids[:, :-1], max(len(one.answer_ids) for one in questions)


@torch.inference_mode()
def _score(model: Any, reader: Reader, questions: Sequence[Question]) -> NDArray[np.bool_]:
    """Which of several questions of one length are answered right."""
    ids = np.stack([one.input_ids for one in questions])
    sizes = np.array([[len(one.answer_ids)] for one in questions])
    longest = int(sizes.max())
    # A tokenizer that merges digits makes answers of different lengths; all end the sequence.
    predicted = model.head(reader.last_states(ids[:, :-1], longest)).argmax(-1).cpu().numpy()
    asked = np.arange(longest) >= longest - sizes
    right: NDArray[np.bool_] = ((predicted == ids[:, -longest:]) | ~asked).all(-1)
    return right
