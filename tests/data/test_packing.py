"""Prepared data: the tokens on disk are the documents, and damage is noticed."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fope_lab.data.corpora.base import Corpus, Split
from fope_lab.data.corpora.python import PythonDocs
from fope_lab.data.corpora.registry import parse_corpus
from fope_lab.data.packing import PackedCorpus, write_packed
from fope_lab.data.problems import DataError
from fope_lab.data.rows import TextRows
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer

BYTE = ByteTokenizer()
EXPECTED = {"tokenizer": BYTE.identity(), "split": "train"}


class WideTokenizer(ByteTokenizer):
    """Ids that need more than 16 bits."""

    vocabulary_size = 100_000

    def encode(self, text: str) -> list[int]:
        return [token + 70_000 for token in super().encode(text)]


@pytest.fixture
def corpus(whole_texts: Callable[..., Corpus]) -> Corpus:
    return whole_texts("Ä document.", "b", "third\n")


def pack(corpus: Corpus, directory: Path, tokenizer: ByteTokenizer = BYTE) -> PackedCorpus:
    directory.mkdir()
    info = write_packed(directory, corpus, tokenizer, "train")
    packed = PackedCorpus(directory, {})
    assert packed.info == info
    return packed


def test_documents_lie_one_after_the_other(corpus: Corpus, tmp_path: Path) -> None:
    packed = pack(corpus, tmp_path / "out")
    expected, starts = [], []
    for text in ["Ä document.", "b", "third\n"]:
        starts.append(len(expected))
        expected += [*text.encode(), 256]
    assert packed.tokens[:].tolist() == expected
    assert packed.starts.tolist() == starts
    assert packed.loss is None
    assert packed.tokens.dtype == np.dtype("<u2")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "data.json",
        "documents-00000.bin",
        "tokens-00000.bin",
    ]
    info = json.loads((tmp_path / "out" / "data.json").read_text())
    assert info["identity"] == {"corpus": corpus.identity(), **EXPECTED}


def test_large_vocabularies_are_wide(corpus: Corpus, tmp_path: Path) -> None:
    packed = pack(corpus, tmp_path / "out", WideTokenizer())
    assert packed.tokens.dtype == np.dtype("<u4")
    assert packed.tokens[-2:].tolist() == [70_000 + ord("\n"), 256]


@pytest.mark.usefixtures("few_modules")
def test_the_answers_of_pairs_and_their_ends_are_to_be_learnt(tmp_path: Path) -> None:
    corpus = parse_corpus("python-docstrings", tmp_path)
    packed = pack(corpus, tmp_path / "out")
    assert packed.info["kind"] == "pairs"
    assert packed.loss is not None
    pairs = list(corpus.documents("train"))
    assert packed.info["documents"] == len(pairs)
    ends = [*packed.starts[1:], len(packed.tokens)]
    for index in (0, 7, len(pairs) - 1):
        place = slice(packed.starts[index], ends[index])
        document, loss = packed.tokens[place].tolist(), packed.loss[place].tolist()
        answer = loss.index(1)
        assert loss == [0] * answer + [1] * (len(document) - answer)
        assert BYTE.decode(document[:answer]) == pairs[index][0]
        assert BYTE.decode(document[answer:-1]) == pairs[index][1]
        assert document[-1] == BYTE.eos_id


class Endless(PythonDocs):
    """As much text as is asked for, made as it is read."""

    def __init__(self, count: int) -> None:
        object.__setattr__(self, "count", count)

    def identity(self) -> dict[str, Any]:
        return {"type": "endless"}

    def documents(self, split: Split) -> Iterator[str]:
        for index in range(self.count):
            yield f"{index} " * 1000


def test_memory_is_bounded(tmp_path: Path) -> None:
    """Of writing and of reading, whatever there is; with processes, see benchmarks."""
    written, read = [], []
    for count in (1_000, 4_000):
        directory = tmp_path / str(count)
        directory.mkdir()
        tracemalloc.start()
        info = write_packed(directory, Endless(count), BYTE, "train", shard_length=1 << 19)
        written.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert info["documents"] == count
        sizes = [path.stat().st_size for path in directory.glob("tokens-*.bin")]
        assert len(sizes) == -(-info["tokens"] // (1 << 19)) > 5
        tracemalloc.start()
        rows = TextRows(PackedCorpus(directory, EXPECTED), 1024, (0, 0), within=True)
        for first in range(0, 4_000, 100):
            rows.rows(first, 100)
        read.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert sum(sizes) > 1.2 * written[1]
    assert written[1] < 1.5 * written[0]
    assert read[1] < min(sum(sizes) / 5, 1.5 * read[0])


def test_progress_is_told(corpus: Corpus, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    write_packed(tmp_path, corpus, BYTE, "train", progress=lambda d, t: told.append((d, t)))
    assert told[-1] == (3, 22)


def test_an_empty_split_is_an_error(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the validation split .* has no document"):
        write_packed(tmp_path, corpus, BYTE, "validation")


def test_a_corpus_that_changes_while_it_is_read_is_an_error(corpus: Corpus, tmp_path: Path) -> None:
    def change(documents: int, tokens: int) -> None:
        (tmp_path / "0.txt").write_text("something else")

    with pytest.raises(DataError, match="changed while it was being read"):
        write_packed(tmp_path, corpus, BYTE, "train", progress=change)


def test_data_for_another_use_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    directory = pack(corpus, tmp_path / "out").directory
    PackedCorpus(directory, EXPECTED)
    with pytest.raises(DataError, match="prepared with split train, but needs validation"):
        PackedCorpus(directory, {"split": "validation"})
    with pytest.raises(DataError, match=r"prepared with tokenizer .*byte.*, but needs .*other"):
        PackedCorpus(directory, {"tokenizer": {"tokenizer": "other"}})


def test_damage_is_noticed(corpus: Corpus, tmp_path: Path) -> None:
    directory = pack(corpus, tmp_path / "out").directory
    tokens = directory / "tokens-00000.bin"
    content = tokens.read_bytes()
    tokens.write_bytes(content[:-2])
    with pytest.raises(DataError, match="has 42 bytes, needs 44: it is incomplete"):
        PackedCorpus(directory, {})
    tokens.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(DataError, match=r"tokens-00000\.bin is damaged: its SHA-256 is"):
        PackedCorpus(directory, {}).verify()
    tokens.write_bytes(content)
    PackedCorpus(directory, {}).verify()
    (directory / "documents-00000.bin").unlink()
    with pytest.raises(DataError, match="can't be read: No such file"):
        PackedCorpus(directory, {})
    (directory / "data.json").unlink()
    with pytest.raises(DataError, match="is not prepared data"):
        PackedCorpus(directory, {})


def test_the_fingerprint_is_of_the_content(corpus: Corpus, tmp_path: Path) -> None:
    one = pack(corpus, tmp_path / "one").info["fingerprint"]
    assert pack(corpus, tmp_path / "same").info["fingerprint"] == one
    (tmp_path / "0.txt").write_text("other", encoding="utf-8")
    assert pack(corpus, tmp_path / "other").info["fingerprint"] != one


def test_text_is_halved_anywhere(corpus: Corpus, tmp_path: Path) -> None:
    write_packed(tmp_path, corpus, BYTE, "train", shard_length=7)
    whole = PackedCorpus(tmp_path, {})
    first, tokens = whole.first_half(), whole.tokens[:]
    assert whole.middle == len(tokens) // 2 == len(first.tokens)
    assert [*first.tokens[:], *whole.tokens.part(whole.middle, None)[:]] == tokens.tolist()
    assert first.starts.tolist() == [at for at in whole.starts.tolist() if at < whole.middle]


@pytest.mark.usefixtures("few_modules")
def test_pairs_are_halved_between_two_of_them(tmp_path: Path) -> None:
    write_packed(tmp_path, parse_corpus("python-docstrings", tmp_path), BYTE, "validation")
    whole = PackedCorpus(tmp_path, {})
    first = whole.first_half()
    assert whole.middle in whole.starts
    assert abs(whole.middle - len(whole.tokens) / 2) < 1000
    assert len(first.tokens) == len(first.loss or ()) == whole.middle
