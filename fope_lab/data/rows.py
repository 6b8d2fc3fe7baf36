"""Rows of `length` + 1 tokens from prepared data and from tasks, in a random order for each epoch.

A source of rows is an endless sequence that can be read at any position; the rows depend on the
data and the seed alone. A row has one more token than the model reads, because the last token is
only predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fope_lab.data.packing import PackedCorpus
from fope_lab.data.problems import DataError
from fope_lab.data.seeding import Ids, Name, permutation

IGNORED = -100
"""The label of a position without loss (the default of torch's cross-entropy)."""


class Rows(NamedTuple):
    """`ids` (rows, length + 1), `labels` (the ids, but IGNORED where there is no loss), and
    `documents`, the number of each token's document in its row, or None if a row is one document.

    `sizes` (rows,) are the numbers of tokens of each row before its padding, or None if no row is
    padded.
    """

    ids: Ids
    labels: Ids
    documents: Ids | None
    sizes: Ids | None = None


class RowSource(Protocol):
    """An endless sequence of rows that can be read from any position.

    `epoch` is the number of rows before the data repeats, or None if it never does; `numbered` says
    whether the rows number their documents.
    """

    epoch: int | None
    numbered: bool

    def rows(self, first: int, count: int) -> Rows:
        """Rows `first` … `first + count − 1`; a row depends on its number alone."""
        ...


class EpochOrder:
    """Repeats the items 0 … count − 1 without end, each epoch in its own random order.

    An order takes 8 bytes per item: 160 MB for ten billion tokens in windows of 512.
    """

    def __init__(self, count: int, name: Name) -> None:
        self.count = count
        # A batch may span two epochs; more are never needed at once.
        self.order = lru_cache(maxsize=2)(lambda epoch: permutation((*name, epoch), count))

    def items(self, first: int, count: int) -> Ids:
        """Items `first` … `first + count − 1` of the endless sequence: (count,)."""
        parts = []
        while count > 0:
            epoch, place = divmod(first, self.count)
            parts.append(self.order(epoch)[place : place + count])
            first += len(parts[-1])
            count -= len(parts[-1])
        return np.concatenate(parts)


class TextRows:
    """Windows of `length` + 1 tokens, each sharing one token with the next, so that every token is
    predicted once per epoch.

    A window may span several documents. Each document begins with the tokens of `prefix`, which are
    not predicted. With `within`, the documents are numbered, and the first token of each is not
    predicted. Raises DataError if the text is shorter than a window.
    """

    def __init__(
        self,
        packed: PackedCorpus,
        length: int,
        name: Name,
        *,
        within: bool = False,
        prefix: Sequence[int] = (),
    ) -> None:
        self._tokens, self._length = packed.tokens, length
        self._prefix = np.array(prefix, np.int64)
        self._starts = packed.starts + len(prefix) * np.arange(len(packed.starts))
        """Where the documents begin in the text with its prefixes."""
        total = len(packed.tokens) + len(prefix) * len(packed.starts)
        self.epoch: int | None = (total - 1) // length
        self.numbered = within
        if self.epoch < 1:
            identity = packed.info["identity"]
            raise DataError(
                f"the {identity['split']} split of {identity['corpus']['type']} "
                f"({packed.directory}) has {total} tokens; "
                f"a length of {length} needs at least {length + 1}"
            )
        self._order = EpochOrder(self.epoch, ("text", *name))

    def rows(self, first: int, count: int) -> Rows:
        starts = self._order.items(first, count) * self._length
        if len(self._prefix):
            ids, of_prefix = self._with_prefix(starts)
        else:
            ids, of_prefix = self._tokens.windows(starts, self._length + 1), None
        documents = self._documents(starts) if self.numbered else None
        labels = ids if documents is None and of_prefix is None else ids.copy()
        if documents is not None:
            labels[:, 1:][documents[:, 1:] != documents[:, :-1]] = IGNORED
        if of_prefix is not None:
            labels[of_prefix] = IGNORED
        return Rows(ids, labels, documents)

    def _with_prefix(self, starts: Ids) -> tuple[Ids, NDArray[np.bool_]]:
        """The tokens of windows, and which of them are of a prefix: both (count, length + 1)."""
        places = starts[:, None] + np.arange(self._length + 1)
        document = np.searchsorted(self._starts, places, side="right") - 1
        inside, size = places - self._starts[document], len(self._prefix)
        of_prefix = inside < size
        ids = self._prefix[inside.clip(max=size - 1)]
        stored = places - size * (document + 1)
        for row, own, at in zip(ids, ~of_prefix, stored, strict=True):
            if own.any():  # they lie one after the other on disk
                row[own] = self._tokens[int(at[own][0]) : int(at[own][-1]) + 1]
        return ids, of_prefix

    def _documents(self, starts: Ids) -> Ids:
        """The number of each token's document in its window, from 0: (count, length + 1)."""
        begins = np.zeros((len(starts), self._length + 1), np.int64)
        lows = np.searchsorted(self._starts, starts, side="right")
        highs = np.searchsorted(self._starts, starts + self._length, side="right")
        for row, start, low, high in zip(begins, starts, lows, highs, strict=True):
            row[self._starts[low:high] - start] = 1
        return begins.cumsum(1)


class ExampleRows:
    """Supervised examples (pairs or chats), padded on the right, with a loss on the answers only.

    Each begins with the tokens of `prefix`, but a chat with what its template writes. A row holds
    one example, or with `pack` as many as fit, numbered as documents. `examples` counts the
    examples that fit into `length` + 1 tokens, `dropped` those that are longer and are left out;
    `fill` is the share of the rows' tokens that is not padding. Raises DataError if the data is
    plain text, or if no example fits.
    """

    def __init__(
        self,
        packed: PackedCorpus,
        length: int,
        name: Name,
        *,
        pad_id: int = 0,
        pack: bool = False,
        prefix: Sequence[int] = (),
    ) -> None:
        if packed.loss is None:
            raise DataError(f"{packed.directory} holds plain text; needs pairs or chats")
        self._tokens, self._loss = packed.tokens, packed.loss
        self._width, self._pad_id = length + 1, pad_id
        self._prefix = np.array(() if packed.info["kind"] == "chats" else prefix, np.int64)
        sizes = np.diff(packed.starts, append=len(packed.tokens)) + len(self._prefix)
        fitting = sizes <= self._width
        self.dropped, self.examples = int((~fitting).sum()), int(fitting.sum())
        if not self.examples:
            raise DataError(
                f"no example in {packed.directory} fits into a length of {length}: "
                f"the shortest needs {int(sizes.min()) - 1}"
            )
        self._starts, self._sizes = packed.starts[fitting], sizes[fitting]
        name = (packed.info["kind"], *name)
        if pack:
            packing = _Packed(self._sizes, self._width, name)
            self._examples, rows = packing.examples, packing.rows
        else:
            order, rows = EpochOrder(self.examples, name), self.examples
            self._examples = lambda row: order.items(row, 1)
        self.epoch: int | None = rows
        self.numbered = pack
        self.fill = float(self._sizes.sum() / (rows * self._width))

    def rows(self, first: int, count: int) -> Rows:
        ids = np.full((count, self._width), self._pad_id, np.int64)
        learnt = np.zeros(ids.shape, np.bool_)
        documents = np.zeros_like(ids)
        sizes = np.zeros(count, np.int64)
        for row in range(count):
            place = 0
            examples = self._examples(first + row)
            for number, example in enumerate(examples):
                start, end = int(self._starts[example]), place + int(self._sizes[example])
                own = place + len(self._prefix)
                ids[row, place:own] = self._prefix
                self._tokens.read(start, ids[row, own:end])
                self._loss.read(start, learnt[row, own:end])
                learnt[row, place] = False  # no token before it could predict it
                documents[row, place:end] = number
                place = end
            documents[row, place:] = len(examples)
            sizes[row] = place
        labels = np.where(learnt, ids, IGNORED)
        return Rows(ids, labels, documents if self.numbered else None, sizes)


class _Packed:
    """Packs the examples of an epoch in order, and starts a new row where the next does not fit.

    `rows` is the number of rows of the first epoch; others depend on their order.
    """

    def __init__(self, sizes: Ids, width: int, name: Name) -> None:
        self._sizes, self._width = sizes, width
        self._order = EpochOrder(len(sizes), ("packed", *name))
        self._borders = lru_cache(maxsize=2)(self._pack)
        self._ends = [len(self._borders(0)) - 1]
        """The number of rows up to the end of each epoch, for the epochs read so far."""
        self.rows = self._ends[0]

    def examples(self, row: int) -> Ids:
        """The numbers of the examples in a row."""
        while row >= self._ends[-1]:
            self._ends.append(self._ends[-1] + len(self._borders(len(self._ends))) - 1)
        epoch = int(np.searchsorted(self._ends, row, side="right"))
        place = row - (self._ends[epoch - 1] if epoch else 0)
        first, last = self._borders(epoch)[place : place + 2]
        return self._order.order(epoch)[first:last]

    def _pack(self, epoch: int) -> list[int]:
        """The start of each row in an epoch's order, and the end of the last row."""
        ends = np.cumsum(self._sizes[self._order.order(epoch)])
        borders = [0]
        while borders[-1] < len(ends):
            before = int(ends[borders[-1] - 1]) if borders[-1] else 0
            borders.append(int(np.searchsorted(ends, before + self._width, side="right")))
        return borders
