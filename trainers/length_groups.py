"""Groups of rows of similar length, each without the padding behind its longest row.

No token attends to a later one, so that what stands behind the last label of a row changes neither
the loss nor its gradient, but for rounding. And of the tokens before the first label, the last
layer needs no more than keys and values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from fope_lab.data.mixture import Batch
from fope_lab.data.rows import IGNORED


def length_groups(batch: Batch, rows: int) -> Iterator[Batch]:
    """The batch in groups of `rows` rows, the longest first; the last group may be smaller.

    A row ends with its last label, and a group with the end of its longest row.
    """
    counted = batch.labels != IGNORED
    places = torch.arange(1, counted.shape[1] + 1, device=counted.device)
    ends = (counted * places).amax(1)
    order = ends.argsort(descending=True, stable=True)
    for group in order.split(rows):
        yield _cut(batch.part(group), max(1, int(ends[group[0]])))


def tokens_from_first_label(labels: Tensor) -> int:
    """The number of tokens from the first one on that has a label in some row, at least 1.

    `labels` is (rows, length).
    """
    places = (labels != IGNORED).any(0).nonzero()
    return labels.shape[1] - int(places[0]) if len(places) else 1


def _cut(batch: Batch, width: int) -> Batch:
    """The first `width` tokens of each row."""
    return replace(
        batch,
        input_ids=batch.input_ids[:, :width],
        labels=batch.labels[:, :width],
        documents=None if batch.documents is None else batch.documents[:, :width],
        lengths=None if batch.lengths is None else batch.lengths.clamp(max=width),
        positions=None if batch.positions is None else batch.positions[..., :width],
    )
