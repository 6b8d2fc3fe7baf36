"""Training batches: rows from several corpora and tasks, mixed by tokens.

The order is a pure function of (seed, step): it depends on no model, and each worker of a group
gets its slice of the same global batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fope_lab.data.corpora.base import Split
from fope_lab.data.packing import PackedCorpus
from fope_lab.data.problems import DataError
from fope_lab.data.recipe import Data, Source, data_json_schema, parse_data
from fope_lab.data.rows import IGNORED, ExampleRows, Ids, RowSource, TextRows
from fope_lab.data.tasks.base import Task
from fope_lab.data.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "IGNORED",
    "Batch",
    "Data",
    "Mixture",
    "RowSource",
    "Source",
    "TrainingData",
    "data_json_schema",
    "parse_data",
]


@dataclass(frozen=True)
class Batch:
    """`input_ids` and `labels`, int64 (batch, length): the label of a position is the token that
    follows it, or −100 where there is no loss.

    `documents`, int64 (batch, length), numbers the documents of each row where its tokens may not
    see those of other documents, and is None where nothing needs it.
    """

    input_ids: Tensor
    labels: Tensor
    documents: Tensor | None = None


class TrainingData:
    """The batches of one training.

    `directories` holds the prepared data of source i under "data.i" (tasks have none); a source
    that is used up starts again in another order. `batch_size` counts the rows of the global batch,
    of which this worker gets the `rank`-th of `world_size` slices; `split` is what the data must
    have been prepared from, and which rows of a task are read. Raises DataError if a source has no
    row of the length, or was prepared with another tokenizer.
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
    ) -> None:
        if batch_size % world_size:
            raise DataError(
                f"a batch of {batch_size} sequences can't be shared by {world_size} workers"
            )
        self.length = data.length
        self._batch_size = batch_size
        self._rows = batch_size // world_size
        self._offset = rank * self._rows
        self._mixture = Mixture([source.weight for source in data.mix])
        self.sources: list[RowSource] = []
        for index, source in enumerate(data.mix):
            if source.task is not None:
                self.sources.append(TASK_ROWS[split](source.task, tokenizer, data.length, seed))
                continue
            expected = {"tokenizer": tokenizer.identity(), "split": split}
            packed = PackedCorpus(directories[f"data.{index}"], expected)
            source_of = ROW_SOURCES[packed.kind]
            self.sources.append(source_of(packed, data, tokenizer.pad_id, (index, seed)))
        self._numbered = any(source.numbered for source in self.sources)

    def examples(self) -> list[dict[str, Any]]:
        """For each source of pairs or chats how many there are in an epoch, how many were dropped
        because they are longer than a row, and which share of the rows is not padding."""
        return [
            {"examples": one.examples, "dropped": one.dropped, "fill": one.fill}
            for one in self.sources
            if isinstance(one, ExampleRows)
        ]

    def batch(self, step: int) -> Batch:
        """This worker's share of batch number `step`, on the CPU."""
        import torch

        first = step * self._batch_size + self._offset
        of_source, before = self._mixture.assign(first, self._rows)
        ids = np.empty((self._rows, self.length + 1), np.int64)
        labels, documents = np.empty_like(ids), np.zeros_like(ids)
        for index, source in enumerate(self.sources):
            chosen = of_source == index
            count = int(chosen.sum())
            if not count:
                continue
            rows = source.rows(before[index], count)
            ids[chosen], labels[chosen] = rows.ids, rows.labels
            if rows.documents is not None:
                documents[chosen] = rows.documents
        return Batch(
            torch.from_numpy(ids[:, :-1]),
            torch.from_numpy(labels[:, 1:]),
            torch.from_numpy(documents[:, :-1]) if self._numbered else None,
        )


def _text_rows(packed: PackedCorpus, data: Data, pad_id: int, name: tuple[int, ...]) -> TextRows:
    return TextRows(packed, data.length, name, within=data.documents == "within")


def _example_rows(
    packed: PackedCorpus, data: Data, pad_id: int, name: tuple[int, ...]
) -> ExampleRows:
    return ExampleRows(packed, data.length, name, pad_id=pad_id, pack=data.pack)


TASK_ROWS: Mapping[Split, Callable[[Task, Tokenizer, int, int], RowSource]] = {
    "train": lambda task, tokenizer, length, seed: task.rows(tokenizer, length, seed),
    "validation": lambda task, tokenizer, length, seed: task.held_out_rows(tokenizer, length),
}
"""Of a task, by the split."""

ROW_SOURCES: Mapping[str, Callable[[PackedCorpus, Data, int, tuple[int, ...]], RowSource]] = {
    "text": _text_rows,
    "pairs": _example_rows,
    "chats": _example_rows,
}
"""By the kind of the corpus."""


class Mixture:
    """Which source row number r of a training is from, as evenly as the weights allow.

    Among the first n rows, source 0 has floor(n·w₀); of the others' rows, source 1 has its share in
    the same way, and so on. So a source is never more than one row per source away from its exact
    share, every run of rows is as mixed as the whole, and no state is needed to start anywhere.
    """

    def __init__(self, weights: list[float]) -> None:
        rest = np.cumsum(weights[::-1])[::-1]
        self._shares = [float(w / r) for w, r in zip(weights, rest, strict=True)][:-1]

    def assign(self, first: int, count: int) -> tuple[Ids, list[int]]:
        """The source of each of `count` rows from `first` on (count,), and how many rows of each
        source come before them."""
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
