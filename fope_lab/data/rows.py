"""Rows of `length` + 1 tokens from prepared data and from tasks, in an order drawn for each epoch.

A source of rows is an endless sequence, any place of which can be asked for: what it holds there
follows from the data and the seed alone. A row has one token more than the model reads, since the
last is only predicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fope_lab.data.packing import PackedCorpus
from fope_lab.data.problems import DataError
from fope_lab.data.seeding import permutation

IGNORED = -100
"""The label of a position without loss (torch's default)."""
Ids = NDArray[np.int64]
Name = tuple[str | int, ...]
"""Of a stream of random numbers (seeding.py)."""


class Rows(NamedTuple):
    """`ids` (rows, length + 1), `labels` the same with IGNORED where there is no loss, and the
    number of each token's document in its row, or None where all of a row is one."""

    ids: Ids
    labels: Ids
    documents: Ids | None


class RowSource(Protocol):
    """An endless sequence of rows, at any place of which one can start.

    `epoch` is how many rows there are before they come again, or None if they never do; `numbered`
    whether rows have documents.
    """

    epoch: int | None
    numbered: bool

    def rows(self, first: int, count: int) -> Rows:
        """Rows `first` … `first + count − 1`; they depend on nothing else."""
        ...


class EpochOrder:
    """Items 0 … count − 1 again and again, each epoch in a random order of its own.

    An order takes 8 bytes an item: 160 MB for ten billion tokens in windows of 512.
    """

    def __init__(self, count: int, name: Name) -> None:
        self.count = count
        # A batch may lie across two epochs; more are never needed at once.
        self.order = lru_cache(maxsize=2)(lambda epoch: permutation((*name, epoch), count))

    def items(self, first: int, count: int) -> Ids:
        """Items `first` … `first + count − 1` of the endless sequence."""
        parts = []
        while count > 0:
            epoch, place = divmod(first, self.count)
            parts.append(self.order(epoch)[place : place + count])
            first += len(parts[-1])
            count -= len(parts[-1])
        return np.concatenate(parts)


class TextRows:
    """Windows of `length` + 1 tokens that share one token, so that each token is predicted once an
    epoch. They run over the ends of documents, which are numbered if `within`; the first token of
    a document is then not predicted."""

    def __init__(
        self, packed: PackedCorpus, length: int, name: Name, *, within: bool = False
    ) -> None:
        self._tokens, self._starts = packed.tokens, packed.starts
        self._length = length
        self.epoch: int | None = (len(packed.tokens) - 1) // length
        self.numbered = within
        if self.epoch < 1:
            identity = packed.info["identity"]
            raise DataError(
                f"the {identity['split']} split of {identity['corpus']['type']} "
                f"({packed.directory}) has {len(packed.tokens)} tokens; "
                f"a length of {length} needs at least {length + 1}"
            )
        self._order = EpochOrder(self.epoch, ("text", *name))

    def rows(self, first: int, count: int) -> Rows:
        """See RowSource."""
        starts = self._order.items(first, count) * self._length
        ids = self._tokens.windows(starts, self._length + 1)
        if not self.numbered:
            return Rows(ids, ids, None)
        documents = self._documents(starts)
        labels = ids.copy()
        labels[:, 1:][documents[:, 1:] != documents[:, :-1]] = IGNORED
        return Rows(ids, labels, documents)

    def _documents(self, starts: Ids) -> Ids:
        """The number of each token's document in its window, from 0 (count, length + 1)."""
        begins = np.zeros((len(starts), self._length + 1), np.int64)
        lows = np.searchsorted(self._starts, starts, side="right")
        highs = np.searchsorted(self._starts, starts + self._length, side="right")
        for row, start, low, high in zip(begins, starts, lows, highs, strict=True):
            row[self._starts[low:high] - start] = 1
        return begins.cumsum(1)


class ExampleRows:
    """Supervised examples (pairs, chats), padded on the right, with a loss on what is to be learnt.

    One a row, or with `pack` as many as fit, which are numbered as documents. Examples of more than
    `length` + 1 tokens are left out; `dropped` says how many, `examples` how many are not, and
    `fill` which share of the rows' tokens is theirs and no padding.
    """

    def __init__(
        self,
        packed: PackedCorpus,
        length: int,
        name: Name,
        *,
        pad_id: int = 0,
        pack: bool = False,
    ) -> None:
        if packed.loss is None:
            raise DataError(f"{packed.directory} holds text, no pairs or chats")
        self._tokens, self._loss = packed.tokens, packed.loss
        self._width, self._pad_id = length + 1, pad_id
        sizes = np.diff(packed.starts, append=len(packed.tokens))
        fitting = sizes <= self._width
        self.dropped, self.examples = int((~fitting).sum()), int(fitting.sum())
        if not self.examples:
            raise DataError(
                f"no example of {packed.directory} fits a length of {length}: "
                f"the shortest needs {int(sizes.min()) - 1}"
            )
        self._starts, self._sizes = packed.starts[fitting], sizes[fitting]
        self._order = ORDERS[pack](self._sizes, self._width, (packed.kind, *name))
        self.epoch: int | None = self._order.rows
        self.numbered = pack
        self.fill = float(self._sizes.sum() / (self._order.rows * self._width))

    def rows(self, first: int, count: int) -> Rows:
        """See RowSource."""
        ids = np.full((count, self._width), self._pad_id, np.int64)
        learnt = np.zeros(ids.shape, np.bool_)
        documents = np.zeros_like(ids)
        for row in range(count):
            place = 0
            chosen = self._order.examples(first + row)
            for number, example in enumerate(chosen):
                start, end = int(self._starts[example]), place + int(self._sizes[example])
                self._tokens.read(start, ids[row, place:end])
                self._loss.read(start, learnt[row, place:end])
                learnt[row, place] = False  # it has nothing before it to be predicted from
                documents[row, place:end] = number
                place = end
            documents[row, place:] = len(chosen)
        labels = np.where(learnt, ids, IGNORED)
        return Rows(ids, labels, documents if self.numbered else None)


class _OneARow:
    """Each example is a row; `rows` is how many there are in an epoch."""

    def __init__(self, sizes: Ids, width: int, name: Name) -> None:
        self.rows = len(sizes)
        self._order = EpochOrder(self.rows, name)

    def examples(self, row: int) -> Ids:
        """The examples of a row, by their numbers."""
        return self._order.items(row, 1)


class _Packed:
    """The examples of an epoch one after the other, a new row begun where the next does not fit.

    How many rows an epoch has depends on its order; `rows` is the first's.
    """

    def __init__(self, sizes: Ids, width: int, name: Name) -> None:
        self._sizes, self._width = sizes, width
        self._order = EpochOrder(len(sizes), ("packed", *name))
        self._borders = lru_cache(maxsize=2)(self._pack)
        self._ends = [len(self._borders(0)) - 1]
        """The rows of the epochs so far, for as many epochs as were asked for."""
        self.rows = self._ends[0]

    def examples(self, row: int) -> Ids:
        """The examples of a row, by their numbers."""
        while row >= self._ends[-1]:
            self._ends.append(self._ends[-1] + len(self._borders(len(self._ends))) - 1)
        epoch = int(np.searchsorted(self._ends, row, side="right"))
        place = row - (self._ends[epoch - 1] if epoch else 0)
        first, last = self._borders(epoch)[place : place + 2]
        return self._order.order(epoch)[first:last]

    def _pack(self, epoch: int) -> list[int]:
        """Where in an epoch's order each row begins, and where the last ends."""
        ends = np.cumsum(self._sizes[self._order.order(epoch)])
        borders = [0]
        while borders[-1] < len(ends):
            before = int(ends[borders[-1] - 1]) if borders[-1] else 0
            borders.append(int(np.searchsorted(ends, before + self._width, side="right")))
        return borders


ORDERS: Mapping[bool, type[_OneARow] | type[_Packed]] = {False: _OneARow, True: _Packed}
"""By whether examples are packed."""
