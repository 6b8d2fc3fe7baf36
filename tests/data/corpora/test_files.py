"""Local files in every form that people have them: read alike, or refused where they begin."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fope_lab.data.corpora.base import BREAKS, EXACT, best_cut, split_documents, split_text
from fope_lab.data.corpora.files import Files
from fope_lab.data.corpora.registry import parse_corpus
from fope_lab.data.problems import DataError

TEXTS = [f'Document {i}: "quoted", ünïcode,\twith\nlines\n\nand {"words " * i}.' for i in range(25)]


def zstd(content: bytes) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return bytes(sink.getvalue().to_pybytes())


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstd,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


def json_lines(texts: list[str]) -> bytes:
    # What stands beside the text may change its type from row to row.
    rows = [{"text": text, "meta": [i] if i % 2 else str(i)} for i, text in enumerate(texts)]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def json_list(texts: list[str]) -> bytes:
    return json.dumps([{"text": text} for text in texts], indent=1).encode()


def delimited(texts: list[str], delimiter: str) -> bytes:
    file = io.StringIO(newline="")
    rows = csv.writer(file, delimiter=delimiter)
    rows.writerows([("number", "text"), *enumerate(texts)])
    return file.getvalue().encode("utf-8-sig")


def table(texts: list[str]) -> Any:
    return pyarrow.table({"number": range(len(texts)), "text": texts})


def parquet(texts: list[str], codec: str = "snappy") -> bytes:
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table(texts), sink, row_group_size=7, compression=codec)
    return bytes(sink.getvalue().to_pybytes())


def arrow(texts: list[str], write: Any) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with write(sink, table(texts).schema) as writer:
        writer.write_table(table(texts), max_chunksize=4)
    return bytes(sink.getvalue().to_pybytes())


def tar(content: bytes) -> bytes:
    file, member = io.BytesIO(), tarfile.TarInfo("a.txt")
    member.size = len(content)
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def broken_gzip() -> bytes:
    content = bytearray(gzip.compress(bytes(range(256)) * 99))
    content[12:40] = b"\xff" * 28
    return bytes(content)


def broken_arrow() -> bytes:
    """An offset beyond the texts: to read there ends the process."""
    content = bytearray(arrow(["a", "b", "c"] * 8, pyarrow.ipc.new_stream))
    place = content.index(np.array([0, 1, 2, 3, 4], "<i4").tobytes())
    content[place + 8 : place + 12] = np.array([1 << 30], "<i4").tobytes()
    return bytes(content)


def twice() -> bytes:
    sink = pyarrow.BufferOutputStream()
    two = pyarrow.Table.from_arrays([pyarrow.array(["a"])] * 2, names=["text", "text"])
    pyarrow.parquet.write_table(two, sink)
    return bytes(sink.getvalue().to_pybytes())


def no_text_column() -> bytes:
    """Beside a time that Python can't have."""
    sink = pyarrow.BufferOutputStream()
    when = pyarrow.array([1 << 60], pyarrow.timestamp("us"))
    other = pyarrow.Table.from_arrays([when, pyarrow.array(["a"])], names=["when", "body"])
    pyarrow.parquet.write_table(other, sink)
    return bytes(sink.getvalue().to_pybytes())


FORMS: dict[str, Callable[[list[str]], bytes]] = {
    "a.jsonl": json_lines,
    "a.ndjson": json_lines,
    "a.json": json_list,
    "a.csv": lambda texts: delimited(texts, ","),
    "semicolons.csv": lambda texts: delimited(texts, ";"),
    "a.tsv": lambda texts: delimited(texts, "\t"),
}
COLUMNAR: dict[str, Callable[[list[str]], bytes]] = {
    "a.parquet": parquet,
    "zstd.parquet": lambda texts: parquet(texts, "zstd"),
    "gzip.parquet": lambda texts: parquet(texts, "gzip"),
    "a.arrow": lambda texts: arrow(texts, pyarrow.ipc.new_stream),
    "file.arrow": lambda texts: arrow(texts, pyarrow.ipc.new_file),
    "parquet-without-a-name": parquet,
}


def parse(folder: Path, files: str = "*", **options: Any) -> Files:
    corpus = parse_corpus({"files": files, **options}, folder)
    assert isinstance(corpus, Files)
    corpus.check()
    return corpus


def parts(corpus: Files) -> tuple[list[str], list[str]]:
    return list(corpus.documents("train")), list(corpus.documents("validation"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same documents, each a text file."""
    folder = tmp_path_factory.mktemp("plain")
    for number, text in enumerate(TEXTS):
        (folder / f"{number:02}.txt").write_text(text)
    return folder


CASES = [
    *((name, packing) for name in FORMS for packing in PACKERS),
    *((name, "") for name in COLUMNAR),
]


@pytest.mark.parametrize(("name", "packing"), CASES)
def test_rows_of_every_form_are_the_documents_of_text_files(
    name: str, packing: str, plain: Path, tmp_path: Path
) -> None:
    content = (FORMS | COLUMNAR)[name](TEXTS)
    (tmp_path / f"{name}{packing}").write_bytes(PACKERS[packing](content))
    corpus = parse(tmp_path)
    assert (
        parts(corpus)
        == parts(parse(plain, cut="documents"))
        == (
            [text for i, text in enumerate(TEXTS) if i % 10 != 9],
            [TEXTS[9], TEXTS[19]],
        )
    )
    assert corpus.held_out() == "every 10th document, or of fewer the last"
    assert corpus.identity().keys() == {"type", "documents", "sha256", "form", "column"}
    ends = parse(tmp_path, cut="paragraph")
    assert parts(ends) == parts(parse(plain))
    assert ends.identity() != corpus.identity()


@pytest.mark.parametrize("packing", PACKERS)
def test_text_is_read_packed_or_not(packing: str, tmp_path: Path) -> None:
    (tmp_path / f"a.txt{packing}").write_bytes(PACKERS[packing](TEXTS[3].encode("utf-8-sig")))
    (tmp_path / f"b.md{packing}").write_bytes(PACKERS[packing](b"one\r\ntwo\rthree\n\nfour"))
    corpus = parse(tmp_path)
    train, validation = parts(corpus)
    assert train[0] + validation[0] == TEXTS[3]
    assert train[1] == "one\ntwo\nthree\n\nfour"


def test_a_folder_of_save_to_disk_is_read(tmp_path: Path) -> None:
    import datasets

    saved = datasets.Dataset.from_dict({"text": TEXTS})
    saved.save_to_disk(tmp_path / "saved", num_shards=3)
    both = datasets.DatasetDict({"train": saved, "test": saved.select(range(4))})
    both.save_to_disk(tmp_path / "both")
    assert parts(parse(tmp_path, "saved")) == parts(parse(tmp_path, "both/train"))
    assert sum(map(len, parts(parse(tmp_path, "saved")))) == len(TEXTS)
    with pytest.raises(DataError, match=r"splits train, test, needs one of them, such as both/tr"):
        parse(tmp_path, "both")
    corpus = parse_corpus({"dataset": "./both", "validation_split": "test"}, tmp_path)
    assert list(corpus.documents("train")) == TEXTS
    assert list(corpus.documents("validation")) == TEXTS[:4]
    assert corpus.held_out() == "the split test"
    assert list(parse_corpus({"dataset": "./saved"}, tmp_path).documents("validation")) == [
        TEXTS[9],
        TEXTS[19],
    ]
    for field, value in (("split", "test"), ("validation_split", "test"), ("config", "en")):
        with pytest.raises(DataError, match=rf"^{field}: found '\w+', but .* without splits"):
            parse_corpus({"dataset": "./saved", field: value}, tmp_path).check()
    (tmp_path / "saved" / "cache-0123.arrow").write_bytes(
        arrow(["stale"] * 9, pyarrow.ipc.new_stream)
    )
    assert parts(parse(tmp_path, "saved")) == parts(parse(tmp_path, "both/train"))
    with pytest.raises(DataError, match=r"^split: unknown split of .*both 'trian'; .*'train'"):
        parse_corpus({"dataset": "./both", "split": "trian"}, tmp_path).check()


WRONG: list[tuple[str, bytes, dict[str, Any], str]] = [
    ("a.txt", json_lines(TEXTS), {}, r"a\.txt holds JSON, and its name does not say so: .*form: j"),
    ("a.txt", json_list(TEXTS), {}, r"a\.txt holds JSON"),
    ("a.jsonl", b"just\nprose", {}, r"has the name of JSON, but begins with 'just\\nprose'"),
    ("a.jsonl", b'{"text": "a"}\n{"text": "b"', {}, r"line 2: .* is not one JSON value: Expecting"),
    ("a.jsonl", b'{"text": "a"}\n\n[1]\n', {}, r"line 3: found \[1\], needs an object"),
    ("a.json", b'{\n "text": "a"\n}', {}, r"line 1: '\{' is not one JSON value"),
    ("a.jsonl", b'{"text": "a"}\n{"txt": "b"}', {}, r"line 2: no column 'text' \(it has: txt\); "),
    ("a.jsonl", b'{"content": "a", "id": 3}', {}, r"did you mean column: content\?"),
    ("a.jsonl", b'{"text": null}', {}, r"line 1: column 'text' holds None, needs text"),
    ("a.jsonl", b'{"text": "\xe4"}', {}, r"not UTF-8 text: byte 11, in line 1, is 0xe4"),
    ("a.csv", b"id,content\n1,abc\n", {}, r"line 2: no column 'text' .*mean column: content\?"),
    ("a.csv", b"id,text\n1,abc\n2,a,b\n", {}, r"line 3: found 3 fields, needs 2"),
    ("a.csv", b'id,text\n1,"abc\n', {}, r"can't be read: unexpected end of data"),
    ("a.parquet", parquet(TEXTS), {"column": "txt"}, r"row 1: no column 'txt' .*column: text\?"),
    ("a.parquet", parquet(TEXTS), {"column": "number"}, r"column 'number' holds 0, needs text"),
    ("a.parquet", parquet(TEXTS)[:-9], {}, r"a\.parquet can't be read: Parquet magic bytes not"),
    ("a.parquet", b"prose", {}, r"has the name of parquet, but not its content"),
    (
        "a.parquet.gz",
        gzip.compress(parquet(TEXTS)),
        {},
        r"holds parquet inside another form",
    ),
    ("a.txt", "a é".encode("latin-1"), {}, r"not UTF-8 text: byte 3, in line 1, is 0xe9"),
    ("a.txt", b"a\n" * 600_000 + b"\xe9", {}, r"byte 1,200,001, in line 600,001, is 0xe9"),
    ("a.txt", "text".encode("utf-16"), {}, r"not UTF-8 text but UTF-16: convert it"),
    ("a.txt.gz", gzip.compress(b"x" * 9999)[:-9], {}, r"a\.txt\.gz can't be read: Compressed file"),
    ("a.txt.zst", zstd(b"x" * 9999)[:-9], {}, r"can't be read: Truncated compressed stream"),
    ("a.jsonl", b'{"text": "\\ud800"}', {}, r"line 1: '.ud800' is no character of Unicode"),
    (
        "a.npy",
        b"\x93NUMPY\x01\x00",
        {},
        r"a\.npy holds token ids: write token_ids: in place",
    ),
    ("a.pdf", b"%PDF-1.7", {}, r"a PDF: extract its text"),
    ("a.db", b"SQLite format 3\0" + b"x" * 99, {}, r"a database of SQLite"),
    ("a.txt", b"version https://git-lfs.github.com/spec/v1", {}, r"a pointer of Git LFS"),
    ("a.tar", tar(b"text " * 999), {}, r"an archive of tar: unpack it"),
    ("a.tar.gz", gzip.compress(tar(b"text " * 999)), {}, r"an archive of tar: unpack it"),
    ("a.txt", "wide text".encode("utf-16-le"), {}, r"is no text: 50% of its first bytes are NUL"),
    ("a.jsonl", b'{"text": ' + b"[" * 99999, {}, r"line 1: .* is not one JSON value: "),
    ("a.json", b"[]", {}, r"^files: found no text in"),
    ("a.txt.gz", broken_gzip(), {}, r"a\.txt\.gz can't be read: "),
    ("a.txt", b"\xef\xbb\xbf", {}, r"^files: found no text in"),
    ("a.txt", b"x", {}, r"^files: found one character, needs some to hold out"),
    (
        "a.txt",
        b"one line of words",
        {"cut": "line"},
        r"^cut: found line, but no line ends in the ",
    ),
    ("a.csv", b"text,text\na,b\n", {}, r"line 1: several columns have the name 'text'"),
    ("a.parquet", twice(), {}, r"several columns have the name 'text'|can't be read"),
    ("a.arrow", broken_arrow(), {}, r"a\.arrow can't be read: "),
    (
        "a.parquet",
        no_text_column(),
        {},
        r"row 1: no column 'text' \(it has: when, body\); .*body",
    ),
    ("a.txt", b"", {}, r"^files: found no text in .*a\.txt"),
    ("a.jsonl", b"\n", {}, r"^files: found no text in .*a\.jsonl"),
    ("a.txt", b"text", {"column": "body"}, r"^column: found 'body', but the files hold text"),
    ("a.jsonl", b'{"text": "a"}', {"cut": "documents"}, r"^cut: found one document, needs two"),
]


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    WRONG,
    ids=[f"{number}-{wrong[0]}" for number, wrong in enumerate(WRONG)],  # bytes have times in them
)
def test_what_can_not_be_read_is_one_error(
    name: str, content: bytes, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        parse(tmp_path, **options)
    assert len(error.value.problems) == 1


def test_files_of_several_forms_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "b.jsonl").write_bytes(json_lines(TEXTS))
    with pytest.raises(DataError, match=r"a\.txt holds text, b\.jsonl holds json, needs files of "):
        parse(tmp_path)


def test_a_file_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(json_lines(TEXTS))
    (tmp_path / "b.jsonl").symlink_to(tmp_path / "a.jsonl")
    assert parse(tmp_path).files == (str(tmp_path / "a.jsonl"),)


def test_the_name_counts_where_a_browser_has_unpacked_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(delimited(TEXTS, ","))
    assert sum(map(len, parts(parse(tmp_path)))) == len(TEXTS)


def test_a_tab_or_the_column_tells_what_separates_columns(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("text\nwith, commas, inside\nand, more, of, them\n")
    (tmp_path / "b.csv").write_text('text;"a,b,c"\none;two\nthree;four\n')
    (tmp_path / "c.csv").write_text("id, text\n1,one\n2,two\n")
    for name, texts in (
        ("a.tsv", ["with, commas, inside", "and, more, of, them"]),
        ("b.csv", ["one", "three"]),
        ("c.csv", ["one", "two"]),
    ):
        train, validation = parts(parse(tmp_path, name))
        assert train + validation == texts


def test_a_form_that_is_given_is_not_guessed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(json_lines(TEXTS))
    assert sum(map(len, parts(parse(tmp_path, form="json")))) == len(TEXTS)
    text = parse(tmp_path, form="text")
    assert "".join(map("".join, parts(text))) == (tmp_path / "a.txt").read_text()
    assert parse(tmp_path, form="json").identity() != text.identity()


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("one two\n" * 99 + "\n" + "end", "paragraph"),
        ("one two\n" * 99, "line"),
        ("one two " * 99, "word"),
        ("x" * 99, "exact"),
    ],
)
def test_a_held_out_part_always_exists(text: str, cut: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(text)
    corpus = parse(tmp_path)
    [train], [validation] = parts(corpus)
    assert train + validation == text
    assert validation.strip()
    assert 0.8 <= len(train) / len(text) < 1
    assert f"cut {'where a ' + cut if cut in BREAKS else 'after nine tenths'}" in corpus.held_out()
    assert (": no " in corpus.held_out()) == (cut != "paragraph")
    named = parse(tmp_path, cut=cut)
    assert (parts(named), named.identity()) == (parts(corpus), corpus.identity())
    # What an earlier version held nothing out of must not have its key.
    assert corpus.identity().get("cut", "paragraph") == cut


@given(st.lists(st.text("a \n", min_size=2), min_size=1), st.sampled_from([*BREAKS, EXACT]))
def test_a_text_is_cut_in_two(texts: list[str], cut: str) -> None:
    for text in texts:
        train, validation = split_text(text, cut)
        assert train + validation == text
        if validation and cut in BREAKS:
            assert train.endswith(BREAKS[cut])
    best = best_cut(texts)
    assert any(split_text(text, best)[1] for text in texts)
    larger = [*BREAKS, EXACT][: [*BREAKS, EXACT].index(best)]
    assert not any(split_text(text, one)[1] for text in texts for one in larger)


@given(st.integers(2, 60))
def test_of_few_documents_the_last_is_held_out(count: int) -> None:
    train, validation = (list(split_documents(range(count), s)) for s in ("train", "validation"))
    assert sorted(train + validation) == list(range(count))
    assert validation == (list(range(9, count, 10)) if count >= 10 else [count - 1])


@settings(deadline=None, max_examples=30)
@given(st.lists(st.text(min_size=1), min_size=2, max_size=12))
def test_any_text_comes_back(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    texts = [text.encode("utf-8", "ignore").decode().replace("\r", "\n") or "x" for text in texts]
    folder = tmp_path_factory.mktemp("any")
    for name in ("a.jsonl", "a.csv", "a.parquet"):
        (folder / name).write_bytes((FORMS | COLUMNAR)[name](texts))
        train, validation = parts(parse(folder, name))
        assert sorted(train + validation) == sorted(texts)
