"""Which tokens of sequences a model predicts, each from the right tokens before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fope_lab.evaluation.scoring.batches import Result, Work, batches_of, one_after_another
from fope_lab.evaluation.scoring.hidden_states import device_of, final_states, pass_over

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
    on. `model.hidden(input_ids)` is
    (batch, length, …), and `model.head` of some of these states their logits. About `batch_tokens`
    are read at once; `progress` takes how many sequences are done, and `work` gives the results of
    batches.
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
    """Which tokens of sequences that are read at once the model predicts."""
    ids = torch.from_numpy(sequences).to(device_of(model))
    hidden = final_states(model, ids[:, :-1])[:, given - 1 :].flatten(0, 1)
    chosen = [model.head(states).argmax(-1) for states in hidden.split(LOGIT_ROWS)]
    right: NDArray[np.bool_] = torch.cat(chosen).view(len(ids), -1).eq(ids[:, given:]).cpu().numpy()
    return right
