"""Prepared data: a corpus as one array of tokens on disk, written and read in bounded memory.

tokens.bin      uint16 or uint32, little endian: the documents one after the other, an
                end-of-text token after each
documents.npy   int64: where each document starts
answers.npy     int64, pairs only: where each document's answer starts, from its own start
data.json       what the tokens are of, and how many
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from fope_lab.data.base import Corpus, Pair, Split
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizer import Tokenizer

FORMAT = 1
BATCH_CHARACTERS = 1 << 20
BATCH_DOCUMENTS = 1024
T = TypeVar("T")


def data_identity(corpus: Corpus, tokenizer: Mapping[str, Any], split: Split) -> dict[str, Any]:
    """What prepared data follows from, as JSON; `tokenizer` is the tokenizer's own identity."""
    return {"corpus": corpus.identity(), "tokenizer": dict(tokenizer), "split": split}


def write_packed(
    directory: Path,
    corpus: Corpus,
    tokenizer: Tokenizer,
    split: Split,
    *,
    progress: Callable[[int, int], None] = lambda documents, tokens: None,
) -> dict[str, Any]:
    """Tokenise a split of a corpus into an existing directory; returns what data.json holds.

    `progress(documents, tokens)` is called now and then. Raises DataError if the data changes
    while it is read, or has no document.
    """
    identity = data_identity(corpus, tokenizer.identity(), split)
    dtype = np.dtype("<u2" if tokenizer.vocabulary_size <= 1 << 16 else "<u4")
    tokens = documents = 0
    with (
        (directory / "tokens.bin").open("wb") as token_file,
        _Int64File(directory / "documents.npy") as starts,
        _Int64File(directory / "answers.npy") as answers,
    ):
        stream: Iterable[str | Pair] = corpus.documents(split)
        for batch in _batches(stream, _characters):
            parts = [[doc] if isinstance(doc, str) else list(doc) for doc in batch]
            encoded = iter(tokenizer.encode_batch([part for doc in parts for part in doc]))
            for doc in parts:
                ids = [next(encoded) for _ in doc]
                starts.append(tokens)
                answers.append(len(ids[0]))
                document = [token for part in ids for token in part] + [tokenizer.eos_id]
                token_file.write(np.array(document, dtype).tobytes())
                tokens += len(document)
            documents += len(batch)
            progress(documents, tokens)
    if not documents:
        raise DataError(f"the {split} split of {corpus.canonical()} has no document")
    if corpus.kind == "text":
        (directory / "answers.npy").unlink()
    if corpus.identity() != identity["corpus"]:
        raise DataError(f"{corpus.canonical()} changed while it was being read")
    data = {
        "format": FORMAT,
        "kind": corpus.kind,
        "tokenizer": identity["tokenizer"],
        "vocabulary": tokenizer.vocabulary_size,
        "dtype": dtype.name,
        "tokens": tokens,
        "documents": documents,
        "identity": identity,
    }
    (directory / "data.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return data


class PackedCorpus:
    """A prepared-data directory, memory-mapped.

    `tokens` (tokens,) and `starts` (documents,) are read-only arrays, `answers` (documents,) for
    pairs, else None. `expected` is what must be true of the identity that it was prepared with:
    {"tokenizer": …, "split": …}. Raises DataError if it is not, or the directory is not whole.
    """

    def __init__(self, directory: str | Path, expected: Mapping[str, Any]) -> None:
        self.directory = Path(directory)
        try:
            text = (self.directory / "data.json").read_text(encoding="utf-8")
            self.info: dict[str, Any] = json.loads(text)
        except (OSError, ValueError) as error:
            raise DataError(f"{self.directory} is no prepared data: {error}") from error
        if self.info["format"] != FORMAT:
            raise DataError(
                f"{self.directory} has format {self.info['format']}; this version reads {FORMAT}"
            )
        for name, value in expected.items():
            if self.info["identity"][name] != value:
                raise DataError(
                    f"{self.directory} was prepared with {name} {self.info['identity'][name]}, "
                    f"and {value} is needed"
                )
        dtype = np.dtype(self.info["dtype"]).newbyteorder("<")
        size = (self.directory / "tokens.bin").stat().st_size
        if size != self.info["tokens"] * dtype.itemsize:
            raise DataError(
                f"{self.directory / 'tokens.bin'} has {size} bytes, needs "
                f"{self.info['tokens'] * dtype.itemsize}: it is not whole"
            )
        self.tokens: NDArray[Any] = np.memmap(self.directory / "tokens.bin", dtype, mode="r")
        self.starts = self._array("documents.npy")
        self.answers = self._array("answers.npy") if self.kind == "pairs" else None

    @property
    def kind(self) -> str:
        """`text` or `pairs`."""
        return str(self.info["kind"])

    def _array(self, name: str) -> NDArray[np.int64]:
        array: NDArray[np.int64] = np.load(self.directory / name, mmap_mode="r")
        if len(array) != self.info["documents"]:
            raise DataError(
                f"{self.directory / name} has {len(array)} entries, "
                f"needs {self.info['documents']}: it is not whole"
            )
        return array


class _Int64File:
    """A one-dimensional .npy file whose length is known only at the end."""

    def __init__(self, path: Path) -> None:
        self._path, self._raw = path, path.with_suffix(".raw")
        self._count = 0
        self._file: BinaryIO = self._raw.open("wb")

    def append(self, value: int) -> None:
        self._file.write(value.to_bytes(8, "little"))
        self._count += 1

    def __enter__(self) -> _Int64File:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
        header = {"descr": "<i8", "fortran_order": False, "shape": (self._count,)}
        with self._path.open("wb") as target, self._raw.open("rb") as source:
            np.lib.format.write_array_header_1_0(target, header)
            shutil.copyfileobj(source, target)
        os.unlink(self._raw)


def _characters(document: str | Pair) -> int:
    return len(document) if isinstance(document, str) else sum(map(len, document))


def _batches(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Lists of items of about BATCH_CHARACTERS together."""
    batch: list[T] = []
    total = 0
    for item in items:
        batch.append(item)
        total += size(item)
        if total >= BATCH_CHARACTERS or len(batch) >= BATCH_DOCUMENTS:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch
