"""Files of benchmarks: where they are, what they are, and what they hold."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from fope_lab.data.problems import DataError
from fope_lab.papers.resonance import leval_questions as leval
from fope_lab.papers.resonance.leval_questions import TaskFiles

DOCUMENT = {"input": "d", "instructions": ["i", "j"], "outputs": ["A", "B"]}
FOUND = [leval.LEvalQuestion("d", "i", "A"), leval.LEvalQuestion("d", "j", "B")]
NAME = "tpo.jsonl"


def written(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def local(folder: Path) -> TaskFiles:
    return leval.task_files(str(folder), None)


def test_a_file_is_found_in_its_places(tmp_path: Path) -> None:
    for place in leval.PLACES:
        folder = tmp_path / (place.replace("/", "-") or "here")
        written(folder / place / NAME, DOCUMENT)
        assert list(leval.read_questions(local(folder), "tpo")) == FOUND


def test_a_file_that_is_not_there_or_twice(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"found neither .* nor "):
        local(tmp_path).local_file(NAME)
    for place in leval.PLACES[:2]:
        written(tmp_path / place / NAME, DOCUMENT)
    with pytest.raises(DataError, match=r"found both .* and "):
        local(tmp_path).local_file(NAME)


def test_local_files_are_their_content_not_their_place(tmp_path: Path) -> None:
    first, second = leval.PLACES[:2]
    written(tmp_path / "one" / first / NAME, DOCUMENT)
    other = written(tmp_path / "other" / second / NAME, DOCUMENT)
    identity = local(tmp_path / "one").identity([NAME])
    assert local(tmp_path / "other").identity([NAME]) == identity
    written(other, {**DOCUMENT, "input": "e"})
    assert local(tmp_path / "other").identity([NAME]) != identity
    assert leval.task_files(leval.DATASET, "1" * 40).identity([NAME]) == {}


def test_the_hubs_files_are_those_of_a_commit(tmp_path: Path) -> None:
    pinned = leval.task_files(leval.DATASET, "1" * 40)
    assert pinned.resolved(tmp_path) == pinned
    one = leval.task_files(leval.DATASET, None)
    with pytest.raises(DataError, match=f"revision: is missing: pin {one.dataset} to a commit"):
        one.resolved(tmp_path)
    with pytest.raises(DataError, match="local folder, which has no revision"):
        leval.task_files(str(tmp_path), "1" * 40).resolved(tmp_path)
    with pytest.raises(DataError, match=r"dataset: no folder .*/nowhere nor .*/nowhere"):
        leval.task_files("./nowhere", None).resolved(tmp_path)


def test_what_is_read_on_the_hub_is_read_as_it_is_here(tmp_path: Path) -> None:
    """The same code with the hub's address replaced by a folder's."""
    written(tmp_path / "L4NLP" / "LEval" / "c0" / "LEval" / "Exam" / NAME, DOCUMENT)
    files = leval.task_files("L4NLP/LEval", "c0")
    here = f"{tmp_path}/{{dataset}}/{{revision}}/"
    moved = files.on_hub.replace("hf://datasets/{dataset}@{revision}/", here)
    assert list(leval.read_questions(dataclasses.replace(files, on_hub=moved), "tpo")) == FOUND


def test_a_hub_out_of_reach_says_what_else_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match=r"Exam/tpo\.jsonl can't be read: .* give a local folder"):
        list(leval.read_questions(leval.task_files("L4NLP/LEval", "1" * 40), "tpo"))


@pytest.mark.parametrize(
    ("task", "change", "message"),
    [
        ("tpo", {"input": 3}, "line 1: input is '3', needs text"),
        ("tpo", {"outputs": []}, r"line 1: outputs is '\[\]', needs a list of texts"),
        ("tpo", {"outputs": "a"}, "line 1: outputs is 'a', needs a list of texts"),
        ("tpo", {"outputs": ["A"]}, "2 instructions, 1 outputs"),
        ("tpo", {"outputs": ["A", " "]}, "an output is ' ', needs text"),
        ("sci_fi", {"outputs": ["True", "False"]}, r"an output is 'True', needs True or False and"),
    ],
)
def test_a_document_that_is_wrong(
    tmp_path: Path, task: str, change: dict[str, Any], message: str
) -> None:
    written(tmp_path / f"{task}.jsonl", {**DOCUMENT, **change})
    with pytest.raises(DataError, match=message):
        list(leval.read_questions(local(tmp_path), task))


def test_a_row_that_lacks_a_field_names_those_it_has(tmp_path: Path) -> None:
    written(tmp_path / NAME, {"input": "q", "outputs": ["A"]})
    with pytest.raises(DataError, match=r"line 1 has no field instructions \(it has: input, out"):
        list(leval.read_questions(local(tmp_path), "tpo"))


def test_a_file_that_is_no_json_is_named(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("no json\n")
    with pytest.raises(DataError, match=r"tpo\.jsonl can't be read"):
        list(leval.read_questions(local(tmp_path), "tpo"))
