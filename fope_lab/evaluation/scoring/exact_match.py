"""Whether a model predicts tokens, or whole answers, from the right tokens before them.

Greedy decoding gives an answer exactly when each of its tokens is the argmax where the tokens
before it are the right ones: one forward pass for each prompt at most. What prompts have in common
is read once (reading.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fope_lab.evaluation.scoring.batches import Result, Work, batches_of, one_after_another
from fope_lab.evaluation.scoring.reading import (
    Reader,
    device_of,
    final_states,
    lexicographic,
    pass_over,
    reader_of,
)


class Question(Protocol):
    """A prompt and its answer: `input_ids` (length,) ends with `answer_ids`."""

    @property
    def input_ids(self) -> NDArray[np.int64]: ...

    @property
    def answer_ids(self) -> NDArray[np.int64]: ...


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
        ids = np.stack([questions[i].input_ids for i in batch])
        reader.skip(ids[:, :-1], max(len(questions[i].answer_ids) for i in batch))

    right = np.zeros(len(questions), np.bool_)
    done = 0
    for batch, (found,) in zip(batches, work(batches, compute, skip), strict=True):
        right[batch] = found
        done += len(batch)
        progress(done)
    return right


@torch.inference_mode()
def _score(model: Any, reader: Reader, questions: Sequence[Question]) -> NDArray[np.bool_]:
    ids = np.stack([one.input_ids for one in questions])
    sizes = np.array([[len(one.answer_ids)] for one in questions])
    longest = int(sizes.max())
    # A tokenizer that merges digits makes answers of different lengths; all end the sequence.
    predicted = model.head(reader.last_states(ids[:, :-1], longest)).argmax(-1).cpu().numpy()
    asked = np.arange(longest) >= longest - sizes
    right: NDArray[np.bool_] = ((predicted == ids[:, -longest:]) | ~asked).all(-1)
    return right


LOGIT_ROWS = 512  # predictions whose logits are held at once, as in perplexity/losses.py


def correct_tokens(
    model: Any,
    sequences: NDArray[np.int64],
    *,
    given: int,
    batch_tokens: int = 16_384,
    progress: Callable[[int], None] = lambda done: None,
    work: Work = one_after_another,
) -> NDArray[np.bool_]:
    """Which tokens of sequences (count, length) a model predicts when it reads those before them.

    Its prediction is the argmax. The result is (count, length − given), from token number `given`
    on. The model and the options are as in exact_match.
    """
    count, length = sequences.shape

    def compute(batch: list[int]) -> Result:
        return (_correct(model, sequences[batch], given),)

    def skip(batch: list[int], result: Result | None) -> None:
        pass_over(model, len(batch), length - 1)

    correct = np.empty((count, length - given), np.bool_)
    batches = batches_of(range(count), max(1, batch_tokens // length))
    for batch, (right,) in zip(batches, work(batches, compute, skip), strict=True):
        correct[batch] = right
        progress(batch[-1] + 1)
    return correct


@torch.inference_mode()
def _correct(model: Any, sequences: NDArray[np.int64], given: int) -> NDArray[np.bool_]:
    ids = torch.from_numpy(sequences).to(device_of(model))
    hidden = final_states(model, ids[:, :-1])[:, given - 1 :].flatten(0, 1)
    chosen = [model.head(states).argmax(-1) for states in hidden.split(LOGIT_ROWS)]
    right: NDArray[np.bool_] = torch.cat(chosen).view(len(ids), -1).eq(ids[:, given:]).cpu().numpy()
    return right
