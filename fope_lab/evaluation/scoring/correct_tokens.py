"""Which tokens of sequences a model predicts, each from the right tokens before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fope_lab.evaluation.scoring.hidden_states import device_of, final_states

LOGIT_ROWS = 512  # predictions whose logits are held at once, as in perplexity/losses.py


@torch.inference_mode()
def correct_tokens(
    model: Any,
    sequences: NDArray[np.int64],
    *,
    given: int,
    batch_tokens: int = 16_384,
    progress: Callable[[int], None] = lambda done: None,
) -> NDArray[np.bool_]:
    """Which tokens of sequences (count, length) a model predicts when it reads those before them.

    Its prediction is the argmax. The result is (count, length − given), from token number `given`
    on. `model.hidden(input_ids)` is
    (batch, length, …), and `model.head` of some of these states their logits. About `batch_tokens`
    are read at once; `progress` takes how many sequences are done.
    """
    device = device_of(model)
    size = max(1, batch_tokens // sequences.shape[1])
    correct = np.empty((len(sequences), sequences.shape[1] - given), np.bool_)
    for first in range(0, len(sequences), size):
        ids = torch.from_numpy(sequences[first : first + size]).to(device)
        hidden = final_states(model, ids[:, :-1])[:, given - 1 :].flatten(0, 1)
        chosen = [model.head(states).argmax(-1) for states in hidden.split(LOGIT_ROWS)]
        right = torch.cat(chosen).view(len(ids), -1) == ids[:, given:]
        correct[first : first + size] = right.cpu().numpy()
        progress(first + len(ids))
    return correct
