"""The final states of sequences, each of which is read as if it were read alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def device_of(model: nn.Module) -> torch.device:
    """The device of a model's first parameter or buffer; the CPU if it has none."""
    tensors = [*model.parameters(), *model.buffers()]
    return tensors[0].device if tensors else torch.device("cpu")


def pass_over(model: Any, sequences: int, length: int) -> None:
    """Draw the positions that `final_states` would draw for so many sequences of a length."""
    embeddings = list(getattr(model, "position_embeddings", ()))
    if any(one.draws_positions for one in embeddings):
        for _ in range(sequences):
            embeddings[0].positions(length, device=device_of(model))


def final_states(model: Any, ids: Tensor, **more: Any) -> Tensor:
    """`model.hidden` of ids (batch, length): (batch, length, …). It takes `more`, too.

    Where positions are drawn, each sequence draws its own, one after the other: what is measured
    then does not depend on how many are read at once.
    """
    embeddings = list(getattr(model, "position_embeddings", ()))
    states: Tensor
    if any(one.draws_positions for one in embeddings):
        length, device = ids.shape[1], ids.device
        rows = [embeddings[0].positions(length, device=device) for _ in range(len(ids))]
        states = model.hidden(ids, torch.stack(rows), **more)
    else:
        states = model.hidden(ids, **more)
    return states
