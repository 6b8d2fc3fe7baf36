"""Corpora: how they are described, what they are made of, how they are split."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fope_lab.data.corpora.base import split_items, split_text
from fope_lab.data.corpora.files import Files
from fope_lab.data.corpora.hub import PRESETS, Dataset
from fope_lab.data.corpora.registry import corpus_json_schema, corpus_names, parse_corpus
from fope_lab.data.problems import DataError


def rows_of(count: int) -> list[dict[str, str]]:
    return [{"text": f"text {i}", "question": f"q{i}", "answer": f"a{i}"} for i in range(count)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dataset with two splits, in the hub's layout."""
    path = tmp_path / "dataset"
    path.mkdir()
    for name, count in (("train", 40), ("validation", 7)):
        lines = (json.dumps(row) + "\n" for row in rows_of(count))
        (path / f"{name}.jsonl").write_text("".join(lines))
    return path


def parse(value: Any, base: Path = Path("/nowhere")) -> Any:
    return parse_corpus(value, base, at=("corpus",))


@pytest.mark.parametrize("name", corpus_names())
def test_a_name_stands_for_a_corpus_that_its_canonical_form_gives_back(name: str) -> None:
    corpus = parse(name)
    assert parse(corpus.canonical()) == corpus
    assert json.loads(json.dumps(corpus.canonical())) == corpus.canonical()
    assert hash(corpus) == hash(parse(name))


def test_presets_are_pinned_and_take_options() -> None:
    for preset in PRESETS.values():
        assert re.fullmatch("[0-9a-f]{40}", preset.revision or "")
    small = parse({"type": "c4", "limit": 1000})
    assert small == Dataset(**{**vars(PRESETS["c4"]), "limit": 1000})
    assert small.identity() != parse("c4").identity()


def test_a_hub_dataset_needs_a_revision() -> None:
    with pytest.raises(DataError, match=r"corpus\.revision: is missing: pin some/text to a com"):
        parse({"dataset": "some/text"})
    corpus = parse({"dataset": "some/text", "revision": "1" * 40, "limit": 5})
    assert corpus.identity() == {
        "type": "dataset",
        "dataset": "some/text",
        "revision": "1" * 40,
        "limit": 5,
    }


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("pyhton-docs", r"^corpus: unknown corpus 'pyhton-docs'; did you mean 'python-docs'\?"),
        ({"type": "file", "files": "x"}, r"^corpus\.type: unknown corpus 'file'; .*'files'\?"),
        ({"type": "c4", "limt": 3}, r"^corpus\.limt: unknown option .* did you mean 'limit'\?"),
        ({"type": "c4", "limit": 0}, r"^corpus\.limit: found 0, needs at least 1"),
        ({"type": "c4", "limit": "3"}, r"^corpus\.limit: found '3', needs a whole number"),
        ({"files": []}, r"^corpus\.files: found an empty list"),
        ({"files": 3}, r"^corpus\.files: found 3"),
        ("files", r"^corpus\.files: is missing: corpus files needs it"),
        ({"column": "text"}, r"^corpus\.type: is missing"),
        (7, r"^corpus: found 7, needs the corpus's name or a mapping"),
        ({"dataset": "./none"}, r"^corpus\.dataset: no folder /nowhere/none nor"),
        ({"dataset": "/", "revision": "a"}, r"^corpus\.revision: / is a local folder"),
    ],
)
def test_a_wrong_description_says_where_and_what(value: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse(value)


def test_globs_start_from_the_sweep_file_and_then_from_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, current = tmp_path / "beside", tmp_path / "current"
    for place in (beside, current):
        (place / "deep").mkdir(parents=True)
        (place / "deep" / "one.txt").write_text(place.name)
    (current / "two.txt").write_text("two")
    monkeypatch.chdir(current)
    assert parse({"files": "deep/*.txt"}, beside).files == (str(beside / "deep/one.txt"),)
    assert parse({"files": "**/*.txt"}, beside).files == (str(beside / "deep/one.txt"),)
    assert parse({"files": "two.txt"}, beside).files == (str(current / "two.txt"),)
    both = parse({"files": ["two.txt", "t*.txt", "deep/one.txt"]}, beside)
    assert both.files == (str(beside / "deep/one.txt"), str(current / "two.txt"))
    with pytest.raises(DataError, match=r"files\[1\]: no file matches 'x\*' in .*beside nor in "):
        parse({"files": ["two.txt", "x*"]}, beside)


def test_a_file_whose_name_is_a_pattern_is_found(tmp_path: Path) -> None:
    (tmp_path / "a[1].txt").write_text("text")
    assert parse({"files": "a[1].txt"}, tmp_path).files == (str(tmp_path / "a[1].txt"),)


def test_files_are_their_content_not_their_place(tmp_path: Path) -> None:
    def corpus(name: str, *contents: str) -> Files:
        folder = tmp_path / name
        folder.mkdir()
        for index, content in enumerate(contents):
            (folder / f"{index}.txt").write_text(content)
        parsed: Files = parse({"files": "*.txt"}, folder)
        return parsed

    first, same = corpus("first", "one", "two"), corpus("same", "one", "two")
    assert first.canonical() != same.canonical()
    assert first.identity() == same.identity()
    others = [corpus("joined", "onetwo"), corpus("order", "two", "one"), corpus("less", "one")]
    assert all(other.identity() != first.identity() for other in others)
    before = first.identity()
    Path(first.files[0]).write_text("changed")
    assert first.identity() != before


def test_an_exact_cut_is_after_nine_tenths_and_part_of_the_identity(tmp_path: Path) -> None:
    text = "".join(f"word {i}\n\n" for i in range(143))
    (tmp_path / "a.txt").write_text(text)
    corpora = [parse({"files": "a.txt", **o}, tmp_path) for o in ({}, {"cut": "exact"})]
    parts = [list(corpora[1].documents(split)) for split in ("train", "validation")]
    assert parts == [[text[: int(len(text) * 0.9)]], [text[int(len(text) * 0.9) :]]]
    assert not parts[0][0].endswith("\n\n")
    assert corpora[0].identity().keys() == {"type", "documents", "sha256"}  # as in old keys
    assert corpora[1].identity() == {**corpora[0].identity(), "cut": "exact"}
    named = parse({"files": "a.txt", "cut": "paragraph"}, tmp_path)
    assert named.identity() == corpora[0].identity()
    with pytest.raises(DataError, match="cut: found 'middle'"):
        parse({"files": "a.txt", "cut": "middle"}, tmp_path)


def test_files_that_are_no_text_are_named(tmp_path: Path) -> None:
    (tmp_path / "image.txt").write_bytes(b"\xff\xd8\x00")
    with pytest.raises(DataError, match=r"image\.txt is no text: 33% of its first bytes are NUL"):
        list(parse({"files": "*.txt"}, tmp_path).documents("train"))


@given(st.lists(st.text("ab. ", min_size=1), min_size=1).map("\n\n".join))
def test_a_documents_parts_are_the_document(text: str) -> None:
    train, validation = split_text(text)
    assert train + validation == text
    if validation:
        assert train.endswith("\n\n")
        assert validation.strip()


@given(st.integers(2, 30), st.integers(400, 600))
def test_the_last_tenth_is_held_out(size: int, paragraphs: int) -> None:
    text = "\n\n".join(["x" * size] * paragraphs)
    held_out = len(split_text(text)[1]) / len(text)
    assert abs(held_out - 0.1) < 2 / paragraphs


def test_a_document_is_cut_at_the_paragraph_nearest_to_nine_tenths() -> None:
    for before, after in ((81, 92), (88, 97)):
        text = f"{'x' * (before - 2)}\n\n{'y' * (after - before - 2)}\n\n{'z' * (100 - after)}"
        nearest = min((before, after), key=lambda cut: abs(cut - 90))
        assert len(text) == 100
        assert len(split_text(text)[0]) == nearest


def test_a_short_document_is_for_training() -> None:
    assert split_text("a\n\nb") == ("a\n\nb", "")
    assert split_text("") == ("", "")


@given(st.integers(0, 200))
def test_every_tenth_item_is_held_out(count: int) -> None:
    train, validation = (list(split_items(range(count), s)) for s in ("train", "validation"))
    assert sorted(train + validation) == list(range(count))
    assert validation == list(range(9, count, 10))


def test_python_docs_are_english() -> None:
    corpus = parse("python-docs")
    train, validation = (list(corpus.documents(split)) for split in ("train", "validation"))
    assert any("Assert statements are a convenient way" in text for text in train)
    assert 0.05 < sum(map(len, validation)) / sum(map(len, train + validation)) < 0.12


def test_python_source_is_every_module_of_the_standard_library_in_two_parts() -> None:
    corpus = parse("python-source")
    train, validation = (list(corpus.documents(split)) for split in ("train", "validation"))
    whole = inspect.getsource(textwrap)
    place = next(i for i, text in enumerate(train) if whole.startswith(text))
    assert len(train[place]) > 0.8 * len(whole)
    assert any(len(text) > 200 and whole.endswith(text) for text in validation)
    assert 0.05 < sum(map(len, validation)) / sum(map(len, train + validation)) < 0.12


@pytest.mark.usefixtures("few_modules")
def test_python_docstrings_are_signatures_and_summaries() -> None:
    corpus = parse("python-docstrings")
    train, validation = (list(corpus.documents(split)) for split in ("train", "validation"))
    assert len(train) > 100
    assert not {prompt for prompt, _ in train} & {prompt for prompt, _ in validation}
    signature = str(inspect.signature(textwrap.shorten)).replace(" ", "")
    summary = (inspect.getdoc(textwrap.shorten) or "").splitlines()[0]
    pairs = {prompt.replace(" ", ""): answer for prompt, answer in train + validation}
    assert pairs[f'defshorten{signature}:\n"""'] == summary


def texts(documents: Iterator[Any]) -> list[Any]:
    return list(documents)


@pytest.mark.parametrize("as_parquet", [False, True])
def test_a_local_dataset_is_read_as_its_format_says(folder: Path, as_parquet: bool) -> None:
    if as_parquet:
        for split in ("train", "validation"):
            rows = [json.loads(row) for row in (folder / f"{split}.jsonl").read_text().splitlines()]
            pq.write_table(pa.Table.from_pylist(rows), folder / f"{split}-0.parquet")
            (folder / f"{split}.jsonl").unlink()
    spec = {"dataset": "./dataset", "validation_split": "validation"}
    corpus = parse(spec, folder.parent)
    assert parse(corpus.canonical()) == corpus
    assert texts(corpus.documents("train")) == [f"text {i}" for i in range(40)]
    assert texts(corpus.documents("validation")) == [f"text {i}" for i in range(7)]
    few = parse({**spec, "limit": 3, "validation_limit": 2}, folder.parent)
    assert texts(few.documents("train")) == ["text 0", "text 1", "text 2"]
    assert texts(few.documents("validation")) == ["text 0", "text 1"]
    held_out = parse({"dataset": "./dataset", "limit": 21}, folder.parent)
    assert texts(held_out.documents("validation")) == ["text 9", "text 19"]
    assert len(texts(held_out.documents("train"))) == 19


@pytest.mark.parametrize("as_parquet", [False, True])
def test_shuffled_files_are_whole_files_from_anywhere(tmp_path: Path, as_parquet: bool) -> None:
    files = {f"part.{i}": [f"{i} {j}" for j in range(4)] for i in range(8)}
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        for name, rows in files.items():
            path = tmp_path / place / name
            if as_parquet:
                table = pa.Table.from_pylist([{"text": row} for row in rows])
                pq.write_table(table, f"{path}.parquet", row_group_size=2)
            else:
                lines = [json.dumps({"text": row}) for row in rows]
                Path(f"{path}.jsonl").write_text("\n".join(lines))

    def read(place: str = "here", **options: Any) -> list[str]:
        spec = {"dataset": f"./{place}", "split": "train", "validation_split": "train", **options}
        return texts(parse(spec, tmp_path).documents("train"))

    listed = [row for rows in files.values() for row in rows]
    assert read() == read(file_order="listed") == listed
    shuffled = read(file_order="shuffled")
    assert shuffled != listed
    assert sorted(shuffled) == sorted(listed)
    assert [shuffled[i : i + 4] in files.values() for i in range(0, 32, 4)] == [True] * 8
    assert read(file_order="shuffled") == read("there", file_order="shuffled") == shuffled
    assert read(file_order="shuffled", limit=10) == shuffled[:10]
    assert len({row[0] for row in shuffled[:10]} - {"0", "1", "2"}) > 0


def test_short_documents_are_skipped_before_the_held_out_ones_are_counted(folder: Path) -> None:
    corpus = parse({"dataset": str(folder), "min_characters": 7})
    assert texts(corpus.documents("train")) == [f"text {i}" for i in range(10, 40) if i % 10 != 9]
    assert corpus.identity() != parse({"dataset": str(folder)}).identity()
    spec = {"validation_split": "train", "validation_limit": 2}
    few = parse({"dataset": str(folder), "min_characters": 7, **spec})
    assert texts(few.documents("validation")) == ["text 10", "text 11"]
    pairs = {"dataset": str(folder), "column": "question", "limit": 12}
    for kind, least, first in (
        ("dataset-pairs", 6, ("q10", "a10")),
        ("dataset-joined", 7, "q10\na10"),
    ):
        found = parse({"type": kind, "min_characters": least, **pairs})
        assert texts(found.documents("train"))[0] == first
        assert not texts(parse({"type": kind, "min_characters": 8, **pairs}).documents("train"))


def test_short_chats_are_skipped_by_the_characters_of_all_messages(tmp_path: Path) -> None:
    chats = [
        [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "x" * size}]
        for size in (3, 4, 5)
    ]
    lines = [json.dumps({"messages": chat}) for chat in chats]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    spec = {"type": "dataset-chat", "dataset": str(tmp_path), "min_characters": 6}
    assert texts(parse(spec).documents("train")) == chats[1:]


def test_pairs_come_from_two_columns(folder: Path) -> None:
    corpus = parse({"type": "dataset-pairs", "dataset": str(folder), "column": "question"})
    assert corpus.kind == "pairs"
    assert texts(corpus.documents("validation")) == [(f"q{i}", f"a{i}") for i in (9, 19, 29, 39)]


def test_two_columns_are_one_text(folder: Path) -> None:
    rows = [{"question": f"q{i}", "answer": f"a{i}" if i % 2 else ""} for i in range(9)]
    empty = {"question": "", "answer": ""}
    (folder / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in [*rows, empty]))
    corpus = parse({"type": "dataset-joined", "dataset": str(folder), "column": "question"})
    assert parse(corpus.canonical()) == corpus
    assert corpus.kind == "text"
    assert texts(corpus.documents("train")) == [
        f"q{i}\na{i}" if i % 2 else f"q{i}\n" for i in range(9)
    ]
    assert texts(corpus.documents("validation")) == [], "of the ten rows the last is empty"


def test_a_local_dataset_is_its_content(folder: Path, tmp_path: Path) -> None:
    before = parse({"dataset": str(folder)}).identity()
    assert "dataset" not in before
    moved = folder.rename(tmp_path / "moved")
    assert parse({"dataset": str(moved)}).identity() == before
    (moved / "train.jsonl").write_text('{"text": "other"}\n')
    assert parse({"dataset": str(moved)}).identity() != before


def test_a_dataset_that_does_not_fit_is_one_clear_error(folder: Path) -> None:
    with pytest.raises(DataError, match=r"no column 'txt' \(it has: answer, question, text\)"):
        texts(parse({"dataset": str(folder), "column": "txt"}).documents("train"))
    with pytest.raises(DataError, match=r"split test, .* can't be loaded"):
        texts(parse({"dataset": str(folder), "split": "test"}).documents("train"))
    (folder / "train.jsonl").write_text('{"text": 3}\n')
    with pytest.raises(DataError, match="column 'text' holds 3, needs text"):
        texts(parse({"dataset": str(folder)}).documents("train"))


def test_a_hub_name_is_never_a_folder_by_accident(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    corpus = parse({"dataset": "dataset", "revision": "1" * 40})
    with pytest.raises(DataError, match="is a name on the hub"):
        texts(corpus.documents("train"))


def test_the_schema_takes_what_the_parser_takes(folder: Path) -> None:
    schema = corpus_json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    good = [
        *corpus_names(),
        {"files": "*.txt"},
        {"type": "files", "files": ["a", "b"]},
        {"type": "c4", "limit": 10},
        {"dataset": str(folder), "column": "text"},
        *(parse(name).canonical() for name in corpus_names()),
    ]
    for value in good:
        validator.validate(value)
    for value in ["c5", {"type": "c4", "limt": 1}, {"files": 3}, {"type": "c4", "limit": 0}, {}]:
        assert not validator.is_valid(value)
