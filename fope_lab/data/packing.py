"""Prepared data: a corpus as one sequence of tokens on disk, written and read in bounded memory.

NAME-00000.bin, NAME-00001.bin, … hold the consecutive numbers, little endian; all files but the
last have the same length. A fingerprint (SHA-256) of each file is computed while it is written.
"""

from __future__ import annotations

import copy
import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from fope_lab.config.atomic_files import sha256_file
from fope_lab.config.problems import in_few_words
from fope_lab.data.corpora.base import Corpus, Split, sha256_of
from fope_lab.data.problems import DataError
from fope_lab.data.tokenising import tokenised
from fope_lab.data.tokenizers.tokenizer import Tokenizer

SHARD_LENGTH = 1 << 28
"""Numbers per file: half a gigabyte of 16-bit tokens, so the 10 billion of C4 take 38 files."""


class ShardWriter:
    """Appends arrays to the files NAME-….bin of a directory; use it as a context manager."""

    def __init__(
        self, directory: Path, name: str, dtype: np.dtype[Any], length: int = SHARD_LENGTH
    ) -> None:
        self._directory, self._name = directory, name
        self._dtype, self._length = dtype.newbyteorder("<"), length
        self._file: BinaryIO | None = None
        self._digest = hashlib.sha256()
        self._count = 0
        self.shards: list[dict[str, Any]] = []
        """{"file", "length", "sha256"} of each finished file; complete after the `with` block."""

    def append(self, values: NDArray[Any]) -> None:
        while len(values):
            if self._file is None:
                name = f"{self._name}-{len(self.shards):05d}.bin"
                self._file = (self._directory / name).open("wb")
            part, values = np.split(values, [self._length - self._count])
            content = part.astype(self._dtype).tobytes()
            self._file.write(content)
            self._digest.update(content)
            self._count += len(part)
            if self._count == self._length:
                self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._file is None:
            return
        self._file.close()
        name = Path(self._file.name).name
        shard = {"file": name, "length": self._count, "sha256": self._digest.hexdigest()}
        self.shards.append(shard)
        self._file, self._count, self._digest = None, 0, hashlib.sha256()


class ShardedArray:
    """The numbers of several shards as one read-only sequence, read from disk on demand.

    A slice is an array in memory, so it must be small enough to fit.
    """

    def __init__(self, parts: Sequence[NDArray[Any]], dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self._parts = [part for part in parts if len(part)]
        self._starts = np.cumsum([0, *map(len, self._parts)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, places: slice) -> NDArray[Any]:
        start, stop, step = places.indices(len(self))
        if step != 1:
            raise IndexError(f"found a step of {step}: only contiguous slices can be read")
        values = np.empty(max(0, stop - start), self.dtype)
        self.read(start, values)
        return values

    def windows(self, starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
        """The `length` numbers from each of `starts` (count,) on: (count, length)."""
        rows = np.empty((len(starts), length), np.int64)
        for row, start in zip(rows, starts.tolist(), strict=True):
            self.read(start, row)
        return rows

    def part(self, start: int, stop: int | None) -> ShardedArray:
        """The numbers from `start` to before `stop` (None: all) as a sequence, without reading."""
        ends = [len(self) if stop is None else stop, start]
        parts = []
        for part, before in zip(self._parts, self._starts.tolist(), strict=False):
            last, first = (max(0, end - before) for end in ends)
            parts.append(part[first:last])
        return ShardedArray(parts, self.dtype)

    def read(self, start: int, into: NDArray[Any]) -> None:
        """Fill an array with the numbers from `start` on. Raises IndexError if they are too few."""
        if not 0 <= start <= start + len(into) <= len(self):
            raise IndexError(f"found {start} to {start + len(into)}, needs 0 to {len(self)}")
        shard = int(np.searchsorted(self._starts, start, side="right")) - 1
        while len(into):
            inside = start - int(self._starts[shard])
            part = self._parts[shard][inside : inside + len(into)]
            into[: len(part)] = part
            into, start, shard = into[len(part) :], start + len(part), shard + 1


def map_shard(directory: Path, shard: Mapping[str, Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Map the numbers of one file into memory, read-only. Raises DataError if the file is missing
    or incomplete."""
    path, dtype = directory / shard["file"], dtype.newbyteorder("<")
    try:
        size, needed = path.stat().st_size, shard["length"] * dtype.itemsize
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}") from error
    if size != needed:
        raise DataError(f"{path} has {size} bytes, needs {needed}: it is incomplete")
    # A plain array over the mapping: slicing np.memmap itself is several times slower.
    return np.asarray(np.memmap(path, dtype, mode="r"))


FORMAT = 2
INT64, UINT8 = np.dtype(np.int64), np.dtype(np.uint8)


def data_identity(corpus: Corpus, tokenizer: Mapping[str, Any], split: Split) -> dict[str, Any]:
    """All that determines prepared data, as JSON; `tokenizer` is a tokenizer's identity."""
    return {"corpus": corpus.identity(), "tokenizer": dict(tokenizer), "split": split}


def write_packed(
    directory: Path,
    corpus: Corpus,
    tokenizer: Tokenizer,
    split: Split,
    *,
    processes: int = 1,
    shard_length: int = SHARD_LENGTH,
    progress: Callable[[int, int], None] = lambda documents, tokens: None,
) -> dict[str, Any]:
    """Tokenise a split of a corpus into an existing directory; return the content of data.json.

    The files do not depend on the number of `processes`. `progress(documents, tokens)` is called
    after each batch of documents. Raises DataError if the data changes while it is read, if it has
    no document, or if no token counts in the loss.
    """
    identity = data_identity(corpus, tokenizer.identity(), split)

    def wrong(what: str) -> DataError:
        named = f"the {split} split of the corpus ({in_few_words(corpus.canonical())})"
        return DataError(f"{named} {what}")

    dtype = np.dtype(np.uint16 if tokenizer.vocabulary_size <= 1 << 16 else np.uint32)
    count = documents = counted = 0
    with ExitStack() as stack:

        def writer(name: str, dtype: np.dtype[Any], length: int) -> ShardWriter:
            return stack.enter_context(ShardWriter(directory, name, dtype, length))

        tokens = writer("tokens", dtype, shard_length)
        starts = writer("documents", INT64, sys.maxsize)
        loss = writer("loss", UINT8, shard_length)
        parts = tokenised(corpus.documents(split), corpus.kind, tokenizer, processes)
        for part in stack.enter_context(closing(parts)):
            tokens.append(part.tokens)
            starts.append(count + part.starts)
            if part.loss is not None:
                loss.append(part.loss)
                counted += int(part.loss.sum())
            count += len(part.tokens)
            documents += len(part.starts)
            progress(documents, count)
    if not documents:
        hint = "; of a text file, it is the last tenth, by default cut at an empty line"
        raise wrong("has no document" + (hint if split == "validation" else ""))
    if loss.shards and not counted:
        raise wrong("has no token to learn: check the tokenizer's chat template")
    if corpus.identity() != identity["corpus"]:
        raise wrong("changed while it was being read")
    shards = {"tokens": tokens.shards, "documents": starts.shards, "loss": loss.shards}
    data = {
        "format": FORMAT,
        "kind": corpus.kind,
        "tokenizer": identity["tokenizer"],
        "vocabulary": tokenizer.vocabulary_size,
        "dtype": dtype.name,
        "tokens": count,
        "documents": documents,
        "identity": identity,
        "fingerprint": sha256_of(
            shard["sha256"].encode() for array in shards.values() for shard in array
        ),
        "shards": shards,
    }
    (directory / "data.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return data


class PackedCorpus:
    """A directory of prepared data, memory-mapped.

    `tokens` (tokens,) and `loss` (tokens,; None for plain text) are read-only sequences in shards;
    `starts` (documents,) is an array. `expected` holds the values that the data's identity must
    have: {"tokenizer": …, "split": …}. Raises DataError if they differ, or if the directory is
    incomplete.
    """

    def __init__(self, directory: str | Path, expected: Mapping[str, Any]) -> None:
        self.directory = Path(directory)
        try:
            text = (self.directory / "data.json").read_text(encoding="utf-8")
            self.info: dict[str, Any] = json.loads(text)
        except (OSError, ValueError) as error:
            raise DataError(f"{self.directory} is not prepared data: {error}") from error
        if self.info["format"] != FORMAT:
            raise DataError(
                f"{self.directory} has format {self.info['format']}; "
                f"this version reads format {FORMAT}"
            )
        for name, value in expected.items():
            if self.info["identity"][name] != value:
                raise DataError(
                    f"{self.directory} was prepared with {name} {self.info['identity'][name]}, "
                    f"but needs {value}"
                )
        shards = self.info["shards"]
        self.tokens = self._open(shards["tokens"], np.dtype(self.info["dtype"]))
        [documents] = shards["documents"]
        self.starts: NDArray[np.int64] = map_shard(self.directory, documents, INT64)
        self.loss = self._open(shards["loss"], UINT8) if shards["loss"] else None

    def _open(self, shards: Sequence[Mapping[str, Any]], dtype: np.dtype[Any]) -> ShardedArray:
        return ShardedArray([map_shard(self.directory, one, dtype) for one in shards], dtype)

    @property
    def middle(self) -> int:
        """The index of the token at which the second half begins: of text the middle, of pairs and
        chats the nearest beginning of a document."""
        half = len(self.tokens) // 2
        if self.loss is None or len(self.starts) < 2:
            return half
        return int(self.starts[np.abs(self.starts - half).argmin()])

    def first_half(self) -> PackedCorpus:
        """The same data without what comes after `middle`."""
        first, middle = copy.copy(self), self.middle
        first.tokens = self.tokens.part(0, middle)
        first.starts = self.starts[self.starts < middle]
        first.loss = None if self.loss is None else self.loss.part(0, middle)
        return first

    def verify(self) -> None:
        """Read all files and raise DataError if one differs from what was written."""
        for shard in chain.from_iterable(self.info["shards"].values()):
            path = self.directory / shard["file"]
            if (sha256 := sha256_file(path)) != shard["sha256"]:
                raise DataError(
                    f"{path} is damaged: its SHA-256 is {sha256}, but was {shard['sha256']} when it"
                    " was written"
                )
