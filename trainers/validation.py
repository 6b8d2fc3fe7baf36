"""The held-out data of a training: the `validation` split of its own corpora, packed the same way.

Rows come from the corpora in the proportions of the training's mixture. Their order depends on the
data alone, so all embeddings and seeds are measured on the same rows. Where there is text, tasks
are left out; without text, the tasks that have held-out rows are read. No row is read twice.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import torch

from fope_lab.data.mixture import Batch, TrainingData
from fope_lab.data.recipe import Data
from fope_lab.data.roles import text_role, validation_role
from fope_lab.data.rows import IGNORED
from fope_lab.data.tokenizers.tokenizer import Tokenizer
from trainers.worker_group import WorkerGroup

ORDER_SEED = 0


class HeldOut:
    """At most `tokens` held-out tokens, in rows of `length` tokens.

    `directories` holds the prepared data of source i as "validation.i". Each worker reads `rows`
    rows at a time. With `first_half`, only the first half of each corpus is read. Raises DataError
    if a corpus has no held-out row of this length.
    """

    def __init__(
        self,
        data: Data,
        directories: Mapping[str, Path],
        tokenizer: Tokenizer,
        *,
        tokens: int,
        length: int,
        rows: int,
        workers: WorkerGroup,
        first_half: bool = False,
    ) -> None:
        texts = [i for i, source in enumerate(data.mix) if source.corpus is not None]
        places = texts or [
            i for i, source in enumerate(data.mix) if source.task and source.task.has_held_out
        ]
        self._data = TrainingData(
            replace(data, length=length, mix=tuple(data.mix[i] for i in places)),
            {text_role(j): directories[validation_role(i)] for j, i in enumerate(texts)},
            tokenizer,
            batch_size=rows * workers.size,
            seed=ORDER_SEED,
            rank=workers.rank,
            world_size=workers.size,
            split="validation",
            first_half=first_half,
        )
        self._rows, self._workers = rows, workers
        self.total = self._distinct_rows(tokens)

    def batches(self) -> Iterator[Batch]:
        """This worker's batches, equally many on each worker; rows past the last have no labels."""
        together = self._rows * self._workers.size
        for step, first in enumerate(range(0, self.total, together)):
            batch = self._data.batch(step)
            left = self.total - first - self._workers.rank * self._rows
            past = torch.arange(self._rows) >= left
            yield replace(batch, labels=batch.labels.masked_fill(past[:, None], IGNORED))

    def _distinct_rows(self, tokens: int) -> int:
        """The number of rows before the mixture repeats one, within `tokens` tokens."""
        epochs = [source.epoch for source in self._data.sources]

        def repeats(rows: int) -> bool:
            _, of_each = self._data.mixture.assign(rows, 0)
            return any(
                epoch is not None and count > epoch
                for count, epoch in zip(of_each, epochs, strict=True)
            )

        return bisect.bisect_left(range(1, tokens // self._data.length + 1), True, key=repeats)
