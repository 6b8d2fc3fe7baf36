"""Token ids that people bring: in every form the same prepared data as the text they are of."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_files import BASE, changed, load, told

from fope_lab.data.corpora import tokens as tokens_module
from fope_lab.data.corpora.base import Corpus, TokenPiece
from fope_lab.data.corpora.registry import parse_corpus
from fope_lab.data.packing import PackedCorpus, write_packed
from fope_lab.data.problems import DataError
from fope_lab.data.tokenising import tokenised
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer, known_size

BYTE = ByteTokenizer()
EOS = BYTE.eos_id
TEXTS = [f"document {i} " + "word " * i for i in range(30)]
IDS = [[*text.encode(), EOS] for text in TEXTS]
STREAM = [i for ids in IDS for i in ids]


class BeginningTokenizer(ByteTokenizer):
    """Bytes, with a beginning-of-text token before every text."""

    prefix_ids = (ByteTokenizer.bos_id,)


def prepared(corpus: Corpus, split: Any, tokenizer: ByteTokenizer = BYTE) -> tuple[Any, Any]:
    corpus.check()
    with tempfile.TemporaryDirectory() as folder:
        write_packed(Path(folder), corpus, tokenizer, split)
        packed = PackedCorpus(folder, {})
        return packed.tokens[:].tolist(), packed.starts.tolist()


def parse(folder: Path, **options: Any) -> Corpus:
    return parse_corpus({"token_ids": "*", "tokenizer": "byte", **options}, folder)


def llm_c(path: Path, ids: Sequence[int], magic: int, dtype: str) -> None:
    header = np.zeros(256, "<i4")
    header[:3] = magic, 1, len(ids)
    path.write_bytes(header.tobytes() + np.array(ids, dtype).tobytes())


ARRAYS: dict[str, tuple[Callable[[Path], None], dict[str, Any]]] = {
    "a.npy": (lambda path: np.save(path, np.array(STREAM, np.uint16)), {}),
    "wide.npy": (lambda path: np.save(path, np.array(STREAM, np.int64)), {}),
    "train.bin": (
        lambda path: path.write_bytes(np.array(STREAM, "<u2").tobytes()),
        {"dtype": "uint16"},
    ),
    "gpt2.bin": (lambda path: llm_c(path, STREAM, 20240520, "<u2"), {}),
    "llama3.bin": (lambda path: llm_c(path, STREAM, 20240801, "<u4"), {}),
}


def write_json(path: Path, rows: list[list[int]]) -> None:
    path.write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in rows))


def write_parquet(path: Path, rows: list[list[int]]) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"input_ids": rows, "n": range(len(rows))}), path)


ROWS = {"a.jsonl": write_json, "a.parquet": write_parquet}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("piece", [7, 1 << 20])
def test_an_array_is_its_text(
    name: str, piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens_module, "PIECE", piece)
    write, options = ARRAYS[name]
    write(tmp_path / name)
    corpus = parse(tmp_path, **options)
    (train, starts), (validation, _) = (prepared(corpus, s) for s in ("train", "validation"))
    assert train + validation == STREAM
    assert len(train) == len(STREAM) * 9 // 10
    begins = np.cumsum([0, *map(len, IDS)])
    assert starts == [at for at in begins.tolist() if at < len(train)]
    assert corpus.held_out() == "the last tenth of each array"


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("ended", [True, False])
def test_rows_of_ids_are_the_documents(name: str, ended: bool, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXTS))
    plain = parse_corpus({"files": "*"}, texts)
    (tmp_path / "ids").mkdir()
    ROWS[name](tmp_path / "ids" / name, IDS if ended else [ids[:-1] for ids in IDS])
    corpus = parse(tmp_path / "ids")
    for split in ("train", "validation"):
        assert prepared(corpus, split) == prepared(plain, split)
    dataset = {"type": "dataset-tokens", "dataset": str(tmp_path / "ids"), "tokenizer": "byte"}
    assert prepared(parse_corpus(dataset, tmp_path), "train") == prepared(plain, "train")


def test_rows_may_be_pieces_of_a_text(tmp_path: Path) -> None:
    rows = [STREAM[i : i + 64] for i in range(0, len(STREAM), 64)]
    write_parquet(tmp_path / "a.parquet", rows)
    train, starts = prepared(parse(tmp_path, rows="pieces"), "train")
    kept = [i for number, row in enumerate(rows) if number % 10 != 9 for i in row]
    assert train == kept
    assert starts == [0, *(at + 1 for at, i in enumerate(kept[:-1]) if i == EOS)]
    (tmp_path / "a.parquet").unlink()
    square = np.array(STREAM[: 64 * 20]).reshape(20, 64)
    np.save(tmp_path / "a.npy", square)
    held = prepared(parse(tmp_path, rows="pieces"), "validation")[0]
    assert held == [*square[9].tolist(), *square[19].tolist()]


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=1, max_size=6),
    st.lists(st.integers(0, 30), max_size=5),
    st.sampled_from(["eos", "bos", "both"]),
)
def test_the_beginning_token_is_taken_off_and_begins_a_document(
    documents: list[list[int]], cuts: list[int], written: str
) -> None:
    """Against the documents that the stream was made of, wherever the stream is cut."""
    begin, bos = BeginningTokenizer(), ByteTokenizer.bos_id
    front, end = [bos] * (written != "eos"), [EOS] * (written != "bos")
    stream = [i for ids in documents for i in [*front, *ids, *end]]
    borders = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    pieces = [TokenPiece("x", np.array(stream[a:b], np.int64), False) for a, b in pairwise(borders)]
    got, starts = [], []
    for part in tokenised(pieces, "tokens", begin):
        starts += [len(got) + int(at) for at in part.starts]
        got += part.tokens.tolist()
    # An empty document without an end is no document.
    expected = [[*ids, *end] for ids in documents if ids or end]
    assert got == [i for ids in expected for i in ids]
    assert starts == np.cumsum([0, *map(len, expected)])[:-1].tolist()
    whole = [
        TokenPiece("x", np.array([*front, *ids, *end], np.int64), whole=True) for ids in documents
    ]
    assert [part.tokens.tolist() for part in tokenised(whole, "tokens", begin)] == [
        [*ids, EOS] for ids in documents
    ]


WRONG: list[tuple[str, bytes, dict[str, Any], str]] = [
    (
        "a.bin",
        b"abc",
        {},
        r"^dtype: is missing: a\.bin has no header, needs the type of an ",
    ),
    ("a.bin", b"abc", {"dtype": "uint16"}, r"^token_ids: .*a\.bin has 3 bytes of ids, which is no"),
    ("a.npy", b"\x93NUMPY\x01\x00", {}, r"^token_ids: .*a\.npy can't be read: "),
    ("a.txt", b"prose", {}, r"^token_ids: .*a\.txt holds text, needs token ids: \.bin, \.npy, or"),
    (
        "a.jsonl",
        b'{"ids": [1]}',
        {},
        r"line 1: no column 'input_ids' \(it has: ids\)",
    ),
    ("a.jsonl", b'{"input_ids": "a b"}', {}, r"line 1: found 'a b', needs a list of token ids"),
    ("a.jsonl", b'{"input_ids": [1, "a"]}', {}, r"line 1: found \[1, 'a'\], needs a list of"),
    ("a.jsonl", b'{"input_ids": [1.5]}', {}, r"line 1: found \[1\.5\], needs a list of token ids"),
]


@pytest.mark.parametrize(("name", "content", "options", "message"), WRONG)
def test_what_is_no_ids_is_one_error(
    name: str, content: bytes, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        parse(tmp_path, **options).check()


def test_headers_that_say_otherwise_are_refused(tmp_path: Path) -> None:
    llm_c(tmp_path / "a.bin", STREAM, 20240520, "<u2")
    with pytest.raises(DataError, match=r"^dtype: has no effect: .*a\.bin says uint16 itself"):
        parse(tmp_path, dtype="uint16").check()
    content = (tmp_path / "a.bin").read_bytes()
    (tmp_path / "a.bin").write_bytes(content[:-2])
    with pytest.raises(DataError, match=r"has 2,554 ids, but its header says 2,555"):
        parse(tmp_path).check()


def test_rows_are_split_over_all_files_and_empty_ones_left_out(tmp_path: Path) -> None:
    for number in range(5):
        write_json(tmp_path / f"{number}.jsonl", [IDS[number], []])
    corpus = parse(tmp_path)
    assert prepared(corpus, "train")[0] == [i for ids in IDS[:4] for i in ids]
    assert prepared(corpus, "validation")[0] == IDS[4]


def test_each_array_begins_a_document(tmp_path: Path) -> None:
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.arange(20, dtype=np.uint16))
    assert prepared(parse(tmp_path), "train")[1] == [0, 18]


def test_an_end_that_also_begins_stays_in_a_stream() -> None:
    """As of OPT, whose texts begin with </s>."""

    class Both(ByteTokenizer):
        prefix_ids = (EOS,)

    pieces = [TokenPiece("x", np.array([EOS, 1, 2, EOS, 3, EOS]))]
    [part] = tokenised(pieces, "tokens", Both())
    assert part.tokens.tolist() == [EOS, 1, 2, EOS, 3, EOS]
    assert part.starts.tolist() == [0, 1, 4]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("a.npy", {"dtype": "uint16"}, r"^dtype: has no effect on files of npy"),
        ("a.npy", {"column": "ids"}, r"^column: has no effect on files of npy"),
        ("a.npy", {"rows": "pieces"}, r"^rows: has no effect on files of npy"),
        ("empty.npy", {}, r"^token_ids: found no id in .*empty\.npy"),
        ("empty.jsonl", {}, r"^token_ids: found no id in .*empty\.jsonl"),
        ("negative.npy", {}, r"found the id -1, but the tokenizer has the ids 0 to 258"),
        ("late.npy", {}, r"found the id 999, but the tokenizer has the ids 0 to 258"),
    ],
)
def test_ids_that_are_none_and_options_without_effect_are_refused(
    name: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    np.save(tmp_path / "a.npy", np.array(STREAM, np.uint16))
    np.save(tmp_path / "empty.npy", np.array([], np.uint16))
    np.save(tmp_path / "negative.npy", np.array([5, -1]))
    np.save(tmp_path / "late.npy", np.array([*[1] * (3 << 20), 999], np.uint16))
    write_json(tmp_path / "empty.jsonl", [[], []])
    with pytest.raises(DataError, match=message):
        parse_corpus({"token_ids": name, "tokenizer": "byte", **options}, tmp_path).check()


def test_a_bin_file_may_begin_with_any_ids(tmp_path: Path) -> None:
    """35615 is 0x8b1f, as gzip begins, and 65279 a mark of UTF-16."""
    for first in (35615, 65279):
        np.array([first, *range(30)], "<u2").tofile(tmp_path / "a.bin")
        corpus = parse_corpus(
            {"token_ids": "a.bin", "tokenizer": "gpt2", "dtype": "uint16"}, tmp_path
        )
        corpus.check()


def test_ids_above_the_vocabulary_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([*STREAM[:50], 259, *STREAM]))
    with pytest.raises(DataError, match=r"found the id 259, but .* has the ids 0 to 258"):
        parse(tmp_path).check()
    with pytest.raises(DataError, match=r"found the id 259, but .* has the ids 0 to 258"):
        list(tokenised(parse(tmp_path).documents("train"), "tokens", BYTE))


def test_the_size_of_a_tokenizer_is_known_without_loading_it(
    make_bpe: Callable[..., Any], tmp_path: Path
) -> None:
    tokenizer = make_bpe(50)
    tokenizer.add_tokens(["more"])
    tokenizer.save_pretrained(tmp_path)
    for name in (str(tmp_path), str(tmp_path / "tokenizer.json")):
        assert known_size(name) == len(tokenizer)
    assert (known_size("byte"), known_size("gpt2")) == (BYTE.tokens, None)
    (tmp_path / "tokenizer.json").write_text("{}")
    assert known_size(str(tmp_path)) is None


def test_the_tokenizer_of_the_ids_is_that_of_the_model(tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.array(STREAM * 40, np.uint16))
    data = {"token_ids": "ids.npy", "tokenizer": "byte", "length": 64}
    content = changed(BASE, {"stages.pretrain.data": data})
    stage = next(s for s in load(tmp_path, content).stages if s.kind == "prepare-data")
    assert "token-ids" in stage.label
    other = changed(BASE, {"stages.pretrain.data": {**data, "tokenizer": "symbols:parity"}})
    [problem] = told(tmp_path, other)
    assert "its ids are of the tokenizer symbols:parity, but that of the model is byte" in problem
