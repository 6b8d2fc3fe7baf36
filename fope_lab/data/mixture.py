"""Training batches: rows from several corpora and tasks, mixed by tokens.

The order is a pure function of (seed, step): it depends on no model, and each worker of a group
gets its slice of the same global batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from fope_lab.data.packing import PackedCorpus
from fope_lab.data.passkey import PasskeyTask, prompt_form
from fope_lab.data.problems import DataError
from fope_lab.data.recipe import Data, Source, data_json_schema, parse_data
from fope_lab.data.seeding import permutation
from fope_lab.data.tokenizer import Tokenizer

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

IGNORED = -100
"""The label of a position without loss (torch's default)."""
Ids = NDArray[np.int64]
RowsAndLabels = tuple[Ids, Ids]
"""Ids (rows, length + 1), and the same with IGNORED where there is no loss."""


@dataclass(frozen=True)
class Batch:
    """`input_ids` and `labels`, int64 (batch, length): the label of a position is the token that
    follows it, or −100 where there is no loss."""

    input_ids: Tensor
    labels: Tensor


class RowSource(Protocol):
    """An endless sequence of rows, at any place of which one can start."""

    def rows(self, first: int, count: int) -> RowsAndLabels:
        """Rows `first` … `first + count − 1`; they depend on nothing else."""
        ...


class TrainingData:
    """The batches of one training.

    `directories` holds the prepared data of source i under "data.i" (tasks have none); a source
    that is used up starts again in another order. `batch_size` counts the rows of the global batch,
    of which this worker gets the `rank`-th of `world_size` slices. Raises DataError if a source has
    no row of the length, or was prepared with another tokenizer.
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
                task = PasskeyRows(source.task, tokenizer, data.length, seed)
                self.sources.append(task)
                continue
            expected = {"tokenizer": tokenizer.identity(), "split": "train"}
            packed = PackedCorpus(directories[f"data.{index}"], expected)
            cls = ROW_SOURCES[packed.kind]
            self.sources.append(cls(packed, data.length, tokenizer.pad_id, (index, seed)))

    def batch(self, step: int) -> Batch:
        """This worker's share of batch number `step`, on the CPU."""
        import torch

        first = step * self._batch_size + self._offset
        of_source, before = self._mixture.assign(first, self._rows)
        ids = np.empty((self._rows, self.length + 1), np.int64)
        labels = np.empty_like(ids)
        for index, source in enumerate(self.sources):
            chosen = of_source == index
            count = int(chosen.sum())
            if count:
                ids[chosen], labels[chosen] = source.rows(before[index], count)
        return Batch(torch.from_numpy(ids[:, :-1]), torch.from_numpy(labels[:, 1:]))


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


class EpochOrder:
    """Items 0 … count − 1 again and again, each epoch in a random order of its own."""

    def __init__(self, count: int, name: tuple[str | int, ...]) -> None:
        self.count = count
        # A batch may lie across two epochs; more are never needed at once.
        self._order = lru_cache(maxsize=2)(lambda epoch: permutation((*name, epoch), count))

    def items(self, first: int, count: int) -> Ids:
        """Items `first` … `first + count − 1` of the endless sequence."""
        parts = []
        while count > 0:
            epoch, place = divmod(first, self.count)
            parts.append(self._order(epoch)[place : place + count])
            first += len(parts[-1])
            count -= len(parts[-1])
        return np.concatenate(parts)


class TextRows:
    """Windows of `length` + 1 tokens that share one token, so that each token is predicted once an
    epoch. Windows run over the ends of documents."""

    def __init__(
        self, packed: PackedCorpus, length: int, pad_id: int, name: tuple[int, ...]
    ) -> None:
        self._tokens = packed.tokens
        self._length = length
        windows = (len(packed.tokens) - 1) // length
        if windows < 1:
            raise DataError(
                f"{packed.directory} has {len(packed.tokens)} tokens; "
                f"a length of {length} needs at least {length + 1}"
            )
        self._order = EpochOrder(windows, ("text", *name))

    def rows(self, first: int, count: int) -> RowsAndLabels:
        """See RowSource."""
        starts = self._order.items(first, count) * self._length
        ids = self._tokens[starts[:, None] + np.arange(self._length + 1)].astype(np.int64)
        return ids, ids


class PairRows:
    """One supervised pair a row, padded on the right; the loss is on the answer and its end.

    Pairs of more than `length` + 1 tokens are left out; `dropped` says how many.
    """

    def __init__(
        self, packed: PackedCorpus, length: int, pad_id: int, name: tuple[int, ...]
    ) -> None:
        if packed.answers is None:
            raise DataError(f"{packed.directory} holds text, no pairs")
        self._tokens = packed.tokens
        self._pad_id = pad_id
        self._places = np.arange(length + 1)
        sizes = np.diff(packed.starts, append=len(packed.tokens))
        fitting = sizes <= length + 1
        self.dropped = int((~fitting).sum())
        if not fitting.any():
            raise DataError(
                f"no pair of {packed.directory} fits a length of {length}: "
                f"the shortest needs {int(sizes.min()) - 1}"
            )
        self._starts = np.asarray(packed.starts)[fitting]
        self._sizes = sizes[fitting]
        self._answers = np.asarray(packed.answers)[fitting]
        self._order = EpochOrder(len(self._starts), ("pairs", *name))

    def rows(self, first: int, count: int) -> RowsAndLabels:
        """See RowSource."""
        chosen = self._order.items(first, count)
        inside = self._places < self._sizes[chosen, None]
        places = np.minimum(self._starts[chosen, None] + self._places, len(self._tokens) - 1)
        ids = np.where(inside, self._tokens[places].astype(np.int64), self._pad_id)
        answered = inside & (self._places >= self._answers[chosen, None])
        return ids, np.where(answered, ids, IGNORED)


class PasskeyRows:
    """Rows of the passkey task; the loss is on the answers."""

    def __init__(self, task: PasskeyTask, tokenizer: Tokenizer, length: int, seed: int) -> None:
        self._task, self._length, self._seed = task, length, seed
        self._form = prompt_form(task.form, tokenizer, task.digits)
        self.rows(0, 1)  # a length that is too short is an error now, not at some later step

    def rows(self, first: int, count: int) -> RowsAndLabels:
        """See RowSource."""
        ids, answers = self._form.training_rows(
            self._length + 1, self._seed, first, count, self._task.queries
        )
        return ids, np.where(answers, ids, IGNORED)


ROW_SOURCES: dict[str, type[TextRows] | type[PairRows]] = {"text": TextRows, "pairs": PairRows}
