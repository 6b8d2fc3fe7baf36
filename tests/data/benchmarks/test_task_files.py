"""Files of benchmarks: where they are, what they are, and what they hold."""

from __future__ import annotations

import dataclasses
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from fope_lab.data.benchmarks import leval, longbench
from fope_lab.data.benchmarks.task_files import TaskFiles
from fope_lab.data.problems import DataError

ROW = {"input": "q", "context": "c", "answers": ["a", "b"], "length": 7, "all_classes": ["a", "d"]}
DOCUMENT = {"input": "d", "instructions": ["i", "j"], "outputs": ["A", "B"]}


def written(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def local(folder: Path) -> TaskFiles:
    return longbench.task_files(str(folder), None)


def test_a_file_is_found_in_its_places(tmp_path: Path) -> None:
    for place in ("trec_e.jsonl", "data/trec_e.jsonl"):
        folder = tmp_path / place.replace("/", "-")
        written(folder / place, ROW, {**ROW, "length": 8, "all_classes": ["x"]})
        found = list(longbench.read_questions(local(folder), "trec"))
        assert found == [
            longbench.LongBenchQuestion("q", "c", ("a", "b"), 7, ("a", "d")),
            longbench.LongBenchQuestion("q", "c", ("a", "b"), 8, ("x",)),
        ]


def test_a_file_that_is_not_there_or_twice(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"neither .*/trec_e\.jsonl nor .*/data/trec_e\.jsonl"):
        local(tmp_path).local_file("trec_e.jsonl")
    written(tmp_path / "trec_e.jsonl", ROW)
    written(tmp_path / "data" / "trec_e.jsonl", ROW)
    with pytest.raises(DataError, match=r"both .*/trec_e\.jsonl and .*/data/trec_e\.jsonl"):
        local(tmp_path).local_file("trec_e.jsonl")


def test_local_files_are_their_content_not_their_place(tmp_path: Path) -> None:
    one = written(tmp_path / "one" / "trec_e.jsonl", ROW)
    other = written(tmp_path / "other" / "data" / "trec_e.jsonl", ROW)
    written(other.parent / "samsum_e.jsonl", ROW)
    names = ["trec_e.jsonl"]
    identity = local(one.parent).identity(names)
    assert local(tmp_path / "other").identity(names) == identity
    written(other, {**ROW, "length": 8})
    assert local(tmp_path / "other").identity(names) != identity
    assert longbench.task_files(longbench.DATASET, None).identity(names) == {}


def test_the_hubs_files_are_those_of_a_commit(tmp_path: Path) -> None:
    files = longbench.task_files("THUDM/LongBench", None)
    assert files.resolved(tmp_path) == files
    assert files.revision == longbench.REVISION
    assert longbench.task_files("other/copy", None).revision is None
    for one in (longbench.task_files("other/copy", None), leval.task_files(leval.DATASET, None)):
        with pytest.raises(DataError, match=f"revision: is missing: pin {one.dataset} to a commit"):
            one.resolved(tmp_path)
    with pytest.raises(DataError, match="local folder, which has no revision"):
        leval.task_files(str(tmp_path), "1" * 40).resolved(tmp_path)
    with pytest.raises(DataError, match=r"dataset: no folder .*/nowhere nor .*/nowhere"):
        leval.task_files("./nowhere", None).resolved(tmp_path)


def test_what_is_read_on_the_hub_is_read_as_it_is_here(tmp_path: Path) -> None:
    """The same code with the hub's address replaced by a folder's: LongBench's files are in a ZIP
    file, L-Eval's in folders."""
    trec = written(tmp_path / "trec_e.jsonl", ROW)
    commit = tmp_path / "THUDM" / "LongBench" / longbench.REVISION
    commit.mkdir(parents=True)
    with zipfile.ZipFile(commit / "data.zip", "w") as archive:
        archive.write(trec, "data/trec_e.jsonl")
    files = longbench.task_files("THUDM/LongBench", None)
    assert files.on_hub.startswith("zip://data/{name}::hf://datasets/{dataset}@{revision}/")
    here = f"{tmp_path}/{{dataset}}/{{revision}}/"
    moved = files.on_hub.replace("hf://datasets/{dataset}@{revision}/", here)
    [found] = longbench.read_questions(dataclasses.replace(files, on_hub=moved), "trec")
    assert found.words == 7

    written(tmp_path / "L4NLP" / "LEval" / "c0" / "LEval" / "Exam" / "tpo.jsonl", DOCUMENT)
    other = leval.task_files("L4NLP/LEval", "c0")
    moved = other.on_hub.replace("hf://datasets/{dataset}@{revision}/", here)
    found_there = list(leval.read_questions(dataclasses.replace(other, on_hub=moved), "tpo"))
    assert found_there == [leval.LEvalQuestion("d", "i", "A"), leval.LEvalQuestion("d", "j", "B")]


def test_a_hub_out_of_reach_says_what_else_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match=r"Exam/tpo\.jsonl can't be read: .* give a local folder"):
        list(leval.read_questions(leval.task_files("L4NLP/LEval", "1" * 40), "tpo"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input": 3}, "line 1: input is '3', needs text"),
        ({"answers": []}, r"line 1: answers is '\[\]', needs a list of texts"),
        ({"answers": "a"}, "line 1: answers is 'a', needs a list of texts"),
        ({"all_classes": None}, "line 1: all_classes is 'None', needs a list of texts"),
        ({"length": "7"}, "line 1: length is '7', needs a whole number"),
        ({"length": -1}, "line 1: length is -1, needs a number of words"),
    ],
)
def test_a_row_that_is_no_question(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    written(tmp_path / "trec_e.jsonl", {**ROW, **change})
    with pytest.raises(DataError, match=r"trec_e\.jsonl, " + message):
        list(longbench.read_questions(local(tmp_path), "trec"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"outputs": ["A"]}, "2 instructions, 1 outputs"),
        ({"outputs": ["A", " "]}, "an output is ' ', needs text"),
        ({"outputs": ["True", "False"]}, r"an output is 'True', needs True or False and \[fact"),
    ],
)
def test_a_document_without_its_answers(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    written(tmp_path / "sci_fi.jsonl", {**DOCUMENT, **change})
    if "text" in message:
        (tmp_path / "sci_fi.jsonl").rename(tmp_path / "tpo.jsonl")
    task = "tpo" if "text" in message else "sci_fi"
    with pytest.raises(DataError, match=message):
        list(leval.read_questions(leval.task_files(str(tmp_path), None), task))


def test_a_row_that_lacks_a_field_names_those_it_has(tmp_path: Path) -> None:
    written(tmp_path / "samsum_e.jsonl", {"input": "q", "length": 3})
    with pytest.raises(DataError, match=r"line 1 has no field context \(it has: input, length\)"):
        list(longbench.read_questions(local(tmp_path), "samsum"))


def test_a_file_that_is_no_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "samsum_e.jsonl").write_text("no json\n")
    with pytest.raises(DataError, match=r"samsum_e\.jsonl can't be read"):
        list(longbench.read_questions(local(tmp_path), "samsum"))
