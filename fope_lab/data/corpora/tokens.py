"""Corpora that someone has tokenised already: arrays of ids, or rows with a column of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fope_lab.config.annotations import Doc
from fope_lab.config.named_types import given_options
from fope_lab.config.problems import Problem
from fope_lab.data.corpora.base import (
    HELD_OUT,
    TENTHS,
    Kind,
    Split,
    TokenPiece,
    split_documents,
)
from fope_lab.data.corpora.files import FIRST_ROWS, LocalFiles
from fope_lab.data.corpora.forms import Form, column_of
from fope_lab.data.corpora.hub import Dataset
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import known_size, tokenizer_identity

PIECE = 1 << 20
"""How many ids of an array are read at a time."""
HEADER = 256
"""How many 32-bit numbers begin a file of llm.c: a magic number, a version, the count of ids."""
MAGIC = {20240520: "uint16", 20240801: "uint32"}
"""The type of the ids in a file of llm.c, by its magic number."""
ROW_FORMS: tuple[Form, ...] = ("json", "parquet", "arrow")
ROWS = Literal["documents", "pieces"]
ROWS_DOC = Doc(
    "What a row of ids is. documents: one document, to which an end-of-text token is added if it"
    " lacks one. pieces: a part of a text that goes on in the next row; documents end where their"
    " end-of-text token is."
)
TOKENIZER_DOC = Doc("The tokenizer that the ids are of, which must be that of the model.")


class OfTokenizer:
    """Part of a dataclass: a corpus of ids, which has a tokenizer."""

    tokenizer: str

    def with_tokenizer(self, base: Path) -> Self:
        """A copy in which a path of a tokenizer is absolute; it starts from the folder `base`."""
        path = os.path.abspath(base / os.path.expanduser(self.tokenizer))
        is_path = self.tokenizer != "byte" and os.path.exists(path)
        return replace(self, tokenizer=path) if is_path else self  # type: ignore[type-var]

    def tokenizer_problem(self, tokenizer: Any) -> str | None:
        """What is wrong with reading the ids with a model's tokenizer."""
        if not isinstance(tokenizer, str):
            named = "trained in this sweep"
        elif tokenizer_identity(tokenizer) == tokenizer_identity(self.tokenizer):
            return None
        else:
            named = tokenizer
        return f"its ids are of the tokenizer {self.tokenizer}, but that of the model is {named}"


@dataclass(frozen=True, kw_only=True)
class TokenIds(OfTokenizer, LocalFiles):
    """Local files of token ids: arrays of NumPy (.npy), of nanoGPT or llm.c (.bin), or rows of JSON
    Lines, Parquet or Arrow with a column of ids.

    An array is one text, or with two dimensions an array of rows. The held-out part is the last
    tenth of an array, and of rows every tenth. A beginning-of-text token at the beginning of a
    document is taken off: what reads the ids puts it there (`prefix`).
    """

    name = "token-ids"
    kind: ClassVar[Kind] = "tokens"
    shorthand = "token_ids"

    token_ids: Annotated[
        str | tuple[str, ...], Doc("The files to read, or patterns such as shards/*.bin.")
    ]
    tokenizer: Annotated[str, TOKENIZER_DOC]
    column: Annotated[str, Doc("Of rows: the column of the ids.")] = "input_ids"
    rows: Annotated[ROWS, ROWS_DOC] = "documents"
    dtype: Annotated[
        Literal["uint16", "uint32", "int32", "int64"] | None,
        Doc("Of .bin files without a header: the type of an id. nanoGPT writes uint16."),
    ] = None

    def resolved(self, base: Path) -> Self:
        return super().resolved(base).with_tokenizer(base)

    def check(self) -> None:
        try:
            self._check()
        except DataError as error:
            at = ("token_ids",)
            raise DataError(p if p.path else p.under(at) for p in error.problems) from error

    def _check(self) -> None:
        form = self.one_form()
        if form not in (*ROW_FORMS, "npy", "bin"):
            needs = "token ids: .bin, .npy, or rows of JSON Lines, Parquet or Arrow"
            raise DataError(Problem((), f"{self.paths[0]} holds {form}", needs))
        idle = {
            "column": form not in ROW_FORMS,
            "rows": not any(map(self._is_rows, self.paths)),
            "dtype": form != "bin",
        }
        for option, has_no_effect in idle.items():
            if has_no_effect and getattr(self, option) != getattr(type(self), option):
                raise DataError(Problem((option,), f"has no effect on files of {form}"))
        found, limit = 0, known_size(self.tokenizer)
        for path in self.paths:
            for piece in self._looked_at(path):
                piece.check(limit)
                found += len(piece.ids)
        if not found:
            raise DataError(f"found no id in {', '.join(self.places())}")

    def _looked_at(self, path: Path) -> Iterator[TokenPiece]:
        """What of a file is read before anything starts: the first rows, or an array's two ends."""
        if self._is_rows(path):
            yield from islice(self._pieces(path), FIRST_ROWS)
        else:
            array = self._array(path)
            for start in sorted({0, max(0, len(array) - PIECE)}):
                yield TokenPiece(f"{path}, from id {start:,} on", array[start : start + PIECE])

    def held_out(self) -> str:
        is_rows = any(map(self._is_rows, self.paths))
        return f"{TENTHS}, or of fewer the last" if is_rows else "the last tenth of each array"

    def identity(self) -> dict[str, Any]:
        options = given_options(self)
        del options["token_ids"]
        return {**self.content(), **options, "tokenizer": tokenizer_identity(self.tokenizer)}

    def documents(self, split: Split) -> Iterator[TokenPiece]:
        arrays = [path for path in self.paths if not self._is_rows(path)]
        rows = [path for path in self.paths if path not in arrays]
        yield from split_documents(chain.from_iterable(map(self._pieces, rows)), split)
        for path in arrays:
            yield from self._part(path, split)

    def _is_rows(self, path: Path) -> bool:
        form = self.one_form()
        return form in ROW_FORMS or (form == "npy" and self._array(path).ndim > 1)

    def _pieces(self, path: Path) -> Iterator[TokenPiece]:
        """All rows of a file, or the pieces of an array."""
        form = self.one_form()
        if form in ROW_FORMS:
            for where, value in column_of(path, form, self.column):
                if (row := piece(f"{path}, {where}", value, self.rows)) is not None:
                    yield row
        else:
            array = self._array(path)
            if array.ndim == 1:
                yield from _in_pieces(path, array, 0)
            for number, row in enumerate(array if array.ndim > 1 else (), 1):
                yield TokenPiece(f"{path}, row {number}", row, whole=self.rows == "documents")

    def _part(self, path: Path, split: Split) -> Iterator[TokenPiece]:
        array = self._array(path)
        cut = len(array) * (HELD_OUT - 1) // HELD_OUT
        part, first = (array[:cut], 0) if split == "train" else (array[cut:], cut)
        yield from _in_pieces(path, part, first)

    def _array(self, path: Path) -> NDArray[Any]:
        try:
            array = self._npy(path) if self.one_form() == "npy" else self._bin(path)
        except (OSError, ValueError, EOFError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{path} can't be read: {error}") from error
        if array.dtype.kind not in "ui" or array.ndim not in (1, 2):
            found = f"{path} holds {array.dtype} of {array.ndim} dimensions"
            raise DataError(f"{found}, needs whole numbers of one dimension or two")
        return array

    def _npy(self, path: Path) -> NDArray[Any]:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))

    def _bin(self, path: Path) -> NDArray[Any]:
        header = np.fromfile(path, "<i4", HEADER)
        known = MAGIC.get(int(header[0])) if len(header) == HEADER else None
        if known is None and self.dtype is None:
            needs = "the type of an id, such as dtype: uint16, which nanoGPT writes"
            raise DataError(Problem(("dtype",), f"is missing: {path.name} has no header", needs))
        if known is not None and self.dtype is not None:
            raise DataError(Problem(("dtype",), f"has no effect: {path} says {known} itself"))
        dtype, offset = np.dtype(known or self.dtype).newbyteorder("<"), 4 * HEADER if known else 0
        size = path.stat().st_size - offset
        if size % dtype.itemsize or not size:
            raise DataError(f"{path} has {size:,} bytes of ids, which is no number of {dtype.name}")
        if known and header[2] * dtype.itemsize != size:
            found = f"{path} has {size // dtype.itemsize:,} ids"
            raise DataError(f"{found}, but its header says {int(header[2]):,}")
        return np.asarray(np.memmap(path, dtype, mode="r", offset=offset))


@dataclass(frozen=True, kw_only=True)
class DatasetTokens(OfTokenizer, Dataset):
    """Token ids in a column of a dataset of the hub or a local folder."""

    name = "dataset-tokens"
    kind: ClassVar[Kind] = "tokens"
    shorthand = None

    tokenizer: Annotated[str, TOKENIZER_DOC]
    column: Annotated[str, Doc("The column of the ids.")] = "input_ids"
    rows: Annotated[ROWS, ROWS_DOC] = "documents"

    def resolved(self, base: Path) -> Self:
        return super().resolved(base).with_tokenizer(base)

    def check(self) -> None:
        super().check()
        if self.min_characters is not None:
            raise DataError(Problem(("min_characters",), "has no effect: ids have no characters"))

    def identity(self) -> dict[str, Any]:
        return {**super().identity(), "tokenizer": tokenizer_identity(self.tokenizer)}

    def documents(self, split: Split) -> Iterator[TokenPiece]:
        rows = islice(self._rows(split), self.validation_limit if split == "validation" else None)
        for number, row in enumerate(rows, 1):
            where, ids = f"{self.dataset}, row {number} of {split}", self._value(row, self.column)
            if (one := piece(where, ids, self.rows)) is not None:
                yield one


def piece(where: str, value: Any, rows: str) -> TokenPiece | None:
    """A row's ids; None if it has none. Raises DataError if they are something else."""
    try:
        ids = np.asarray(value)
    except ValueError:
        ids = np.array("ragged")
    if ids.ndim != 1 or (ids.dtype.kind not in "ui" and len(ids)):
        text = repr(value)
        found = text if len(text) <= 60 else f"{text[:59]}…"
        raise DataError(f"{where}: found {found}, needs a list of token ids")
    return TokenPiece(where, ids, whole=rows == "documents") if len(ids) else None


def _in_pieces(path: Path, array: NDArray[Any], first: int) -> Iterator[TokenPiece]:
    for start in range(0, len(array), PIECE):
        where = f"{path}, from id {first + start:,} on"
        yield TokenPiece(where, array[start : start + PIECE], begins=start == 0)
