"""Training batches: rows from several corpora and tasks, mixed by tokens or by epochs.

The order is a pure function of (seed, step). It does not depend on the model, and each worker of a
group gets its slice of the same global batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fope_lab.config.roles import text_role
from fope_lab.data.corpora.base import Split
from fope_lab.data.packing import PackedCorpus
from fope_lab.data.problems import DataError
from fope_lab.data.recipe import Data
from fope_lab.data.rows import ExampleRows, RowSource, TextRows
from fope_lab.data.seeding import Ids
from fope_lab.data.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """A training batch: `input_ids` and `labels`, int64 (batch, length).

    The label of a position is the token that follows it, or −100 where there is no loss.
    `documents`, int64 (batch, length), numbers the documents of each row if tokens must not attend
    to other documents, else it is None. `lengths`, int64 (batch,), counts the tokens of each row
    before its padding, and is None if no row is padded. `positions`, (length,) or (batch, length),
    are those of the tokens if they are drawn at random, else None.
    """

    input_ids: Tensor
    labels: Tensor
    documents: Tensor | None = None
    lengths: Tensor | None = None
    positions: Tensor | None = None

    def part(self, rows: slice | Tensor) -> Batch:
        """Some of the rows, by a slice or by their numbers."""
        parts = {
            name: value[rows]
            for name, value in vars(self).items()
            if value is not None and (name != "positions" or value.dim() == 2)
        }
        return replace(self, **parts)


class TrainingData:
    """The batches of one training run.

    `directories` maps "data.i" to the prepared data of source i (tasks have none). `batch_size` is
    the number of rows in the global batch; this worker gets slice `rank` of `world_size`. `split`
    is the split that the data must have been prepared from, and that a task's rows come from. With
    `first_half`, only the first half of each corpus is read.

    Raises DataError if a source has no row of the length, if it was prepared with another tokenizer
    or from another split, or if the batch is not divisible by the number of workers.
    """

    def __init__(
        self,
        data: Data,
        directories: Mapping[str, Path],
        tokenizer: Tokenizer,
        *,
        batch_size: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        split: Split = "train",
        first_half: bool = False,
    ) -> None:
        if batch_size % world_size:
            raise DataError(
                f"a batch of {batch_size} sequences can't be divided among {world_size} workers"
            )
        self.length = data.length
        self._batch_size = batch_size
        self._rows = batch_size // world_size
        self._offset = rank * self._rows
        self.sources: list[RowSource] = []
        rows: RowSource
        for index, source in enumerate(data.mix):
            if source.task is None:
                expected = {"tokenizer": tokenizer.identity(), "split": split}
                packed = PackedCorpus(directories[text_role(index)], expected)
                packed = packed.first_half() if first_half else packed
                name, prefix = (index, seed), tokenizer.prefix_ids
                within = data.documents == "within"
                rows = (
                    TextRows(packed, data.length, name, within=within, prefix=prefix)
                    if packed.loss is None
                    else ExampleRows(
                        packed,
                        data.length,
                        name,
                        pad_id=tokenizer.pad_id,
                        pack=data.pack,
                        prefix=prefix,
                    )
                )
            elif split == "train":
                rows = source.task.rows(tokenizer, data.length, seed)
            else:
                rows = source.task.held_out_rows(tokenizer, data.length)
            self.sources.append(rows)
        weights = [source.weight for source in data.mix]
        if data.weights == "epochs":
            # A source weighs as much as it has rows. Packed, it has about as many in every epoch.
            weights = [w * (rows.epoch or 0) for w, rows in zip(weights, self.sources, strict=True)]
        self.mixture = Mixture(weights)
        self._numbered = any(source.numbered for source in self.sources)

    def examples(self) -> list[dict[str, Any]]:
        """For each source of pairs or chats, the number of examples in an epoch, the number dropped
        as longer than a row, and the share of the rows that is not padding."""
        return [
            {"examples": source.examples, "dropped": source.dropped, "fill": source.fill}
            for source in self.sources
            if isinstance(source, ExampleRows)
        ]

    def batch(self, step: int) -> Batch:
        """This worker's share of batch number `step`, on the CPU."""
        import torch

        first = step * self._batch_size + self._offset
        of_source, before = self.mixture.assign(first, self._rows)
        ids = np.empty((self._rows, self.length + 1), np.int64)
        labels, documents = np.empty_like(ids), np.zeros_like(ids)
        sizes = np.full(self._rows, self.length + 1)
        for index, source in enumerate(self.sources):
            selected = of_source == index
            count = int(selected.sum())
            if not count:
                continue
            rows = source.rows(before[index], count)
            ids[selected], labels[selected] = rows.ids, rows.labels
            if rows.documents is not None:
                documents[selected] = rows.documents
            if rows.sizes is not None:
                sizes[selected] = rows.sizes
        # The last token of a row is only predicted.
        lengths = sizes.clip(max=self.length)
        return Batch(
            torch.from_numpy(ids[:, :-1]),
            torch.from_numpy(labels[:, 1:]),
            torch.from_numpy(documents[:, :-1]) if self._numbered else None,
            torch.from_numpy(lengths) if (lengths < self.length).any() else None,
        )


class Mixture:
    """Assigns each row of a training run to a source, as evenly as the weights allow.

    Among the first n rows, floor(n·w₀) belong to source 0; source 1 gets its share of the rest in
    the same way, and so on. A source is never further from its exact share than one row per source,
    and reading can start anywhere without any state.
    """

    def __init__(self, weights: list[float]) -> None:
        rest = np.cumsum(weights[::-1])[::-1]
        self._shares = [float(w / r) for w, r in zip(weights, rest, strict=True)][:-1]

    def assign(self, first: int, count: int) -> tuple[Ids, list[int]]:
        """The source of each of the `count` rows from `first` on: (count,), and for each source the
        number of its rows before them."""
        sources = np.full(count, len(self._shares), np.int64)
        open_rows = np.arange(count)
        before = []
        for index, share in enumerate(self._shares):
            taken = np.floor(np.arange(first, first + len(open_rows) + 1) * share).astype(np.int64)
            mine = np.diff(taken) > 0
            sources[open_rows[mine]] = index
            open_rows = open_rows[~mine]
            before.append(int(taken[0]))
            first -= int(taken[0])
        return sources, [*before, first]
