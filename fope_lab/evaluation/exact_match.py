"""Whether greedy decoding would answer prompts exactly, from one forward pass for each.

Greedy decoding gives an answer exactly when each of its tokens is the argmax where the tokens
before it are the right ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fope_lab.evaluation.checkpoint import device_of


class Question(Protocol):
    """A prompt and its answer: `input_ids` (length,) ends with `answer_ids`."""

    @property
    def input_ids(self) -> NDArray[np.int64]:
        """Both, as one sequence."""

    @property
    def answer_ids(self) -> NDArray[np.int64]:
        """Its last tokens."""


def exact_match(
    model: Any,
    questions: Sequence[Question],
    *,
    batch_tokens: int = 16_384,
    progress: Callable[[int], None] = lambda done: None,
) -> NDArray[np.bool_]:
    """Which questions (any lengths) a model answers right: (questions,), in their order.

    `model.hidden(input_ids)` is (batch, length, …), and `model.head` of a part of it is that part's
    logits (batch, part, vocabulary). About `batch_tokens` are read at once; `progress` takes how
    many questions are answered. What the model itself raises is an error, never a wrong answer.
    """
    order = sorted(range(len(questions)), key=lambda i: len(questions[i].input_ids))
    right = np.zeros(len(questions), np.bool_)
    done = 0
    for length, alike in groupby(order, key=lambda i: len(questions[i].input_ids)):
        same = list(alike)
        size = max(1, batch_tokens // length)
        for first in range(0, len(same), size):
            batch = same[first : first + size]
            right[batch] = _score(model, [questions[i] for i in batch])
            done += len(batch)
            progress(done)
    return right


@torch.inference_mode()
def _score(model: Any, questions: Sequence[Question]) -> NDArray[np.bool_]:
    """Which of several questions of one length are answered right, from one forward pass."""
    ids = torch.from_numpy(np.stack([one.input_ids for one in questions])).to(device_of(model))
    sizes = torch.tensor([len(one.answer_ids) for one in questions], device=ids.device)
    longest = int(sizes.max())
    # Answers are of different lengths where a tokenizer merges digits: all end with the prompt.
    predicted = model.head(model.hidden(ids[:, :-1])[:, -longest:]).argmax(-1)
    asked = torch.arange(longest, device=ids.device) >= longest - sizes[:, None]
    right = (predicted == ids[:, -longest:]) | ~asked
    found: NDArray[np.bool_] = right.all(-1).cpu().numpy()
    return found
