"""What a local file holds, told by its content and its name, and how to read it.

Text is one document. Rows come from JSON (one object a line, or a list of them), CSV, Parquet or
Arrow. Text, JSON and CSV may be compressed by gzip, zstd, bzip2 or xz.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import csv
import functools
import gzip
import io
import json
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Literal, TypeVar

from fope_lab.config.environment import missing_packages
from fope_lab.config.problems import nearest_name
from fope_lab.data.problems import DataError

Form = Literal["text", "json", "csv", "parquet", "arrow", "npy", "bin"]
T = TypeVar("T")
Placed = Iterator[tuple[str, T]]
"""Values, each with its place in the file in words: "line 3" or "row 3"."""

HEAD = 1 << 16
"""How many bytes of a file tell its form."""
BLOCK = 1 << 20
"""How many bytes of a text are read at a time to check it."""


def _zstd(path: Path) -> IO[bytes]:
    pyarrow = _pyarrow(f"{path}, which is compressed by zstd,")
    stream: IO[bytes] = pyarrow.input_stream(str(path), compression="zstd")
    return stream


OPENERS: Mapping[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\x28\xb5\x2f\xfd": _zstd,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
"""What opens a compressed file, by its first bytes."""
BINARY: Mapping[bytes, Form] = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow",
    b"\x93NUMPY": "npy",
}
NO_TEXT: Mapping[bytes, str] = {
    b"PK\x03\x04": "a zip archive: unpack it",
    b"%PDF": "a PDF: extract its text",
    b"\xff\xfe": "UTF-16: convert it, for example by iconv -f UTF-16 -t UTF-8",
    b"\xfe\xff": "UTF-16: convert it, for example by iconv -f UTF-16 -t UTF-8",
    b"SQLite format 3\x00": "a database of SQLite: export its rows",
    b"{\\rtf": "RTF: save it as plain text",
    b"version https://git-lfs": "a pointer of Git LFS: run git lfs pull",
}
"""What people take for text, by its first bytes."""
ENDINGS: Mapping[str, Form] = {
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".npy": "npy",
    ".bin": "bin",
}
"""The form that the end of a name stands for."""
COMPRESSED_ENDINGS = (".gz", ".zst", ".bz2", ".xz")
TAR, TAR_PLACE = b"ustar", 257
"""What an archive of tar has, and where."""
MOST_NULS = 0.05
"""The largest share of NUL characters in the beginning of a text."""
OBJECT = re.compile(r'\ufeff?\s*(\[\s*)?\{\s*"(\\.|[^"\\])*"\s*:')
"""How JSON begins whose rows are objects."""
DELIMITERS = ",\t;|"


def form_of(path: Path) -> Form:
    """The form of a file. Raises DataError if it can't be read, is no text, or has a name that says
    otherwise than its content."""
    return once_for_each_content(_form_of, path)


def characters_in(path: Path) -> int:
    """How many characters a text file has. Raises DataError, with line and byte, unless all of it
    is UTF-8."""
    return once_for_each_content(_characters_in, path)


def text_of(path: Path) -> str:
    """All of a text file. Raises DataError if it can't be read, or is not UTF-8."""
    with _readable(path), _opened(path) as file, io.TextIOWrapper(file, "utf-8-sig") as text:
        return text.read()


def column_of(path: Path, form: Form, column: str) -> Placed[Any]:
    """Yield what each row of a file has in a column. Raises DataError, with the line or row, if a
    row can't be read or has no such column."""
    with _readable(path):
        if form in ("parquet", "arrow"):
            yield from _columnar(path, form, column)
            return
        for where, row in _json_rows(path) if form == "json" else _csv_rows(path, column):
            if column not in row:
                raise _no_column(path, where, column, row)
            yield where, row[column]


def texts_in(path: Path, form: Form, column: str) -> Iterator[str]:
    """Yield the documents of a file, without empty ones. Raises DataError like `column_of`, and if
    a row holds something other than text."""
    if form == "text":
        yield from filter(None, [text_of(path)])
        return
    for where, text in column_of(path, form, column):
        if not isinstance(text, str):
            raise DataError(f"{path}, {where}: column {column!r} holds {_short(text)}, needs text")
        if not text.isascii():
            _check_encodable(path, where, text)
        if text:
            yield text


def _check_encodable(path: Path, where: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:  # JSON may say half of a character: "\\ud800"
        found = ascii(text[error.start : error.end])
        raise DataError(f"{path}, {where}: {found} is no character of Unicode") from error


def once_for_each_content(read: Callable[..., T], path: Path, *more: Any) -> T:
    """What `read(path, *more)` returns, remembered by the file's size and time: plans ask often."""
    with _readable(path):
        status = path.stat()
    value: T = _remembered(read, path, status.st_size, status.st_mtime_ns, *more)
    return value


@functools.lru_cache(maxsize=4096)
def _remembered(read: Callable[..., Any], path: Path, size: int, modified: int, *more: Any) -> Any:
    with _readable(path):
        return read(path, *more)


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Say of what a broken file raises where it is broken."""
    try:
        yield
    except UnicodeDecodeError as error:
        _characters_in(path)
        raise DataError(f"{path} is not UTF-8 text: {error}") from error
    except (OSError, EOFError, lzma.LZMAError, zlib.error, csv.Error) as error:
        why = getattr(error, "strerror", None) or error
        raise DataError(f"{path} can't be read: {why}") from error


def _opener(path: Path) -> Callable[[Path], Any] | None:
    with path.open("rb") as file:
        first = file.read(8)
    return next((opener for magic, opener in OPENERS.items() if first.startswith(magic)), None)


def _opened(path: Path) -> IO[bytes]:
    opener = _opener(path)
    file: IO[bytes] = path.open("rb") if opener is None else opener(path)
    return file


def _form_of(path: Path) -> Form:
    name = path.name.lower()
    for ending in COMPRESSED_ENDINGS:  # of a browser's download, the name alone may have it
        name = name.removesuffix(ending)
    named = ENDINGS.get(Path(name).suffix, "text")
    if named == "bin":  # ids may begin with any bytes
        return named
    with _readable(path), _opened(path) as file:
        head = file.read(HEAD)
    compressed = _opener(path) is not None
    for magic, form in BINARY.items():
        if head.startswith(magic):
            if compressed:
                raise DataError(f"{path} holds {form} inside another form: unpack it")
            return form
    for magic, what in NO_TEXT.items():
        if head.startswith(magic):
            raise DataError(f"{path} is not UTF-8 text but {what}")
    if head[TAR_PLACE:].startswith(TAR):
        raise DataError(f"{path} is no text but an archive of tar: unpack it")
    if head.count(0) > MOST_NULS * len(head):
        raise DataError(
            f"{path} is no text: {head.count(0) / len(head):.0%} of its first bytes are NUL"
        )
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(head)
    holds_json = OBJECT.match(text) is not None
    if named in BINARY.values():
        raise DataError(f"{path} has the name of {named}, but not its content")
    if holds_json and named != "json":
        raise DataError(
            f"{path} holds JSON, and its name does not say so: write form: json to read a column of"
            " its rows, or form: text to train on all of it, braces and keys too"
        )
    if named == "json" and text.strip() not in ("", "[]") and not holds_json:
        raise DataError(
            f"{path} has the name of JSON, but begins with {_short(text.strip())} and not with an"
            ' object such as {"text": "…"}; write form: text to read it as text'
        )
    return named


def _characters_in(path: Path) -> int:
    decoder, before, count = codecs.getincrementaldecoder("utf-8-sig")(), 0, 0
    with _opened(path) as file:
        for block in iter(lambda: file.read(BLOCK), b""):
            waiting = len(decoder.getstate()[0])
            try:
                count += len(decoder.decode(block))
            except UnicodeDecodeError as error:
                raise _not_utf8(path, before - waiting + error.start) from error
            before += len(block)
    if waiting := len(decoder.getstate()[0]):
        raise _not_utf8(path, before - waiting)
    return count


def _not_utf8(path: Path, place: int) -> DataError:
    with _opened(path) as file:
        read = file.read(place + 1)
    line = read[:place].count(b"\n") + 1
    return DataError(
        f"{path} is not UTF-8 text: byte {place + 1:,}, in line {line:,}, is 0x{read[place]:02x};"
        " convert it, for example by iconv -f LATIN1 -t UTF-8"
    )


def _json_rows(path: Path) -> Placed[Mapping[str, Any]]:
    with _opened(path) as file, io.TextIOWrapper(file, "utf-8-sig") as lines:
        first = next((line for line in lines if line.strip()), "")
    with _opened(path) as file, io.TextIOWrapper(file, "utf-8-sig") as lines:
        if first.lstrip().startswith("["):
            whole = _parsed(path, "line 1", lines.read())
            rows: Iterable[tuple[str, Any]] = ((f"row {n}", row) for n, row in enumerate(whole, 1))
        else:
            rows = (
                (f"line {n}", _parsed(path, f"line {n}", line))
                for n, line in enumerate(lines, 1)
                if line.strip()
            )
        for where, row in rows:
            if not isinstance(row, Mapping):
                needs = 'an object such as {"text": "…"}'
                raise DataError(f"{path}, {where}: found {_short(row)}, needs {needs}")
            yield where, row


def _parsed(path: Path, where: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        found, lines = _short(text.strip()), "; rows are an object a line, or a list of objects"
        why = f"is not one JSON value: {error}{lines if text.strip() == '{' else ''}"
        raise DataError(f"{path}, {where}: {found} {why}") from error


def _csv_rows(path: Path, column: str) -> Placed[Mapping[str, Any]]:
    csv.field_size_limit(sys.maxsize)  # a field may be a book
    with _opened(path) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as lines:
        header = next(lines, "")
        delimiter, names = _header(path, header, column)
        if repeated := [name for name in names if names.count(name) > 1]:
            raise DataError(f"{path}, line 1: several columns have the name {repeated[0]!r}")
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        for row in reader:
            where = f"line {reader.line_num + 1}"
            if row and len(row) != len(names):
                raise DataError(f"{path}, {where}: found {len(row)} fields, needs {len(names)}")
            if row:
                yield where, dict(zip(names, row, strict=True))


def _header(path: Path, header: str, column: str) -> tuple[str, list[str]]:
    """What separates the columns, and their names: a tab by the file's name, else what gives the
    column that is asked for, or the most columns."""
    marks = "\t" if ".tsv" in path.suffixes else DELIMITERS
    split = {mark: next(csv.reader([header], delimiter=mark), []) for mark in marks}
    found = {mark: [name.strip() for name in names] for mark, names in split.items()}
    best = max(found, key=lambda mark: (column in found[mark], len(found[mark])))
    return best, found[best]


def _columnar(path: Path, form: Form, column: str) -> Placed[Any]:
    pyarrow = _pyarrow(f"{path}, which is {form.capitalize()},")
    count = 0
    try:
        for batch in _batches(path, form, column):
            names = batch.schema.names
            if column not in names:
                kinds = {name: str(batch.schema.field(i).type) for i, name in enumerate(names)}
                texts = {name: "" if "string" in kind else None for name, kind in kinds.items()}
                raise _no_column(path, f"row {count + 1}", column, texts)
            if names.count(column) > 1:
                raise DataError(f"{path}: several columns have the name {column!r}")
            batch.validate(full=True)  # reading what is damaged would end the process
            for value in batch.column(column).to_pylist():
                count += 1
                yield f"row {count}", value
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{path} can't be read: {error}") from error


def _batches(path: Path, form: Form, column: str) -> Iterator[Any]:
    import pyarrow.parquet

    if form == "parquet":
        with pyarrow.parquet.ParquetFile(path) as file:
            known = column in file.schema_arrow.names
            yield from file.iter_batches(BLOCK >> 10, columns=[column] if known else None)
        return
    with pyarrow.memory_map(str(path)) as source:
        if source.read(6) == b"ARROW1":
            reader = pyarrow.ipc.open_file(source)
            yield from map(reader.get_batch, range(reader.num_record_batches))
            return
        source.seek(0)
        yield from pyarrow.ipc.open_stream(source)


def _pyarrow(what: str) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise DataError(missing_packages(what, ["pyarrow"])) from error
    return pyarrow


def _no_column(path: Path, where: str, column: str, row: Mapping[str, Any]) -> DataError:
    names = [str(name) for name in row]
    texts = [name for name, value in row.items() if isinstance(value, str)]
    near = nearest_name(column, names) or max(texts, key=lambda name: len(row[name]), default=None)
    hint = f"; did you mean column: {near}?" if near else ""
    has = ", ".join(names) or "none"
    return DataError(f"{path}, {where}: no column {column!r} (it has: {has}){hint}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
