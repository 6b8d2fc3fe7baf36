"""Prepared data: a corpus as one sequence of tokens on disk, written and read in bounded memory.

tokens-00000.bin …     uint16 or uint32: the tokens of all documents, concatenated
documents-00000.bin    int64: the index of each document's first token
loss-00000.bin …       uint8, for pairs and chats only: 1 for each token that counts in the loss
data.json              the data's identity, its number of tokens, and a fingerprint of each file
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fope_lab.config.problems import in_few_words
from fope_lab.data.corpora.base import Corpus, Split, sha256_of
from fope_lab.data.problems import DataError
from fope_lab.data.shards import SHARD_LENGTH, ShardWriter, map_shard, open_shards, verify_shards
from fope_lab.data.tokenising import tokenised
from fope_lab.data.tokenizers.tokenizer import Tokenizer

FORMAT = 2
INT64, UINT8 = np.dtype(np.int64), np.dtype(np.uint8)


def data_identity(corpus: Corpus, tokenizer: Mapping[str, Any], split: Split) -> dict[str, Any]:
    """Return all that determines prepared data, as JSON; `tokenizer` is a tokenizer's identity."""
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
            starts.append(count + np.cumsum(part.sizes) - part.sizes)
            if part.loss is not None:
                loss.append(part.loss)
                counted += int(part.loss.sum())
            count += len(part.tokens)
            documents += len(part.sizes)
            progress(documents, count)
    if not documents:
        hint = "; of a text file, it is the last tenth, by default cut at an empty line"
        raise DataError(
            f"the {split} split of the corpus ({in_few_words(corpus.canonical())}) has no document"
            + (hint if split == "validation" else "")
        )
    if loss.shards and not counted:
        raise DataError(
            f"the {split} split of the corpus ({in_few_words(corpus.canonical())}) has no token to"
            " learn: check the tokenizer's chat template"
        )
    if corpus.identity() != identity["corpus"]:
        raise DataError(
            f"the corpus ({in_few_words(corpus.canonical())}) changed while it was being read"
        )
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
        self.tokens = open_shards(self.directory, shards["tokens"], np.dtype(self.info["dtype"]))
        [documents] = shards["documents"]
        self.starts: NDArray[np.int64] = map_shard(self.directory, documents, INT64)
        loss = shards["loss"]
        self.loss = open_shards(self.directory, loss, UINT8) if loss else None

    @property
    def kind(self) -> str:
        """The kind of the corpus: `text`, `pairs` or `chats`."""
        return str(self.info["kind"])

    @property
    def middle(self) -> int:
        """The index of the token at which the second half begins.

        Text is cut anywhere, and pairs and chats are cut at the document that begins nearest to the
        middle.
        """
        half = len(self.tokens) // 2
        if self.loss is None or len(self.starts) < 2:
            return half
        return int(self.starts[np.abs(self.starts - half).argmin()])

    def first_half(self) -> PackedCorpus:
        """The same data without what comes after `middle`."""
        first, middle = copy.copy(self), self.middle
        first.tokens = self.tokens.first(middle)
        first.starts = self.starts[self.starts < middle]
        first.loss = None if self.loss is None else self.loss.first(middle)
        return first

    def verify(self) -> None:
        """Read all files and raise DataError if one differs from what was written."""
        for shards in self.info["shards"].values():
            verify_shards(self.directory, shards)
