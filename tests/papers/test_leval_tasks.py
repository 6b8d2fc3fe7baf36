"""L-Eval's files and questions, its sections in a sweep file, and its exact match."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from heavy_imports import heavy_modules
from sweep_files import PRETRAIN_LINE, load, of, told, write

from fope_lab.data.problems import DataError
from fope_lab.papers.resonance.leval_tasks import (
    METRICS,
    PLACES,
    TASKS,
    LEvalQuestion,
    TaskFiles,
    exact_match,
    read_questions,
    scores,
)
from fope_lab.sweep.graph import Stage

DOCUMENT = {"input": "d", "instructions": ["i", "j"], "outputs": ["A", "B"]}
FOUND = [LEvalQuestion("d", "i", "A"), LEvalQuestion("d", "j", "B")]
NAME = "tpo.jsonl"
FILES = [f"LEval/Exam/{task}.jsonl" for task in TASKS]
TPO = "LEval/Exam/tpo.jsonl"
CLOSED = "coursera, gsm100, quality, tpo, codeU, sci_fi"
CASES = [
    ("choice", "B", "B", 1),
    ("choice", " The answer is C.", "C", 1),
    ("choice", "Because of D", "B. reason", 1),  # the B of Because
    ("choice", "none", "A", 1),  # taken for A
    ("choice", "none", "B", 0),
    ("choice", "", "B", 0.25),
    ("choices", "AC", "AC", 1),
    ("choices", "CA", "AC", 1),
    ("choices", "A. one\nC. two", "AC", 1),
    ("choices", "A", "AC", 0.25),
    ("choices", "A D.", "AC", 0),
    ("choices", "B) and D) Question 2. A.", "BD", 1),
    ("choices", "Both", "B", 1),
    ("choices", "x", "AC", 0.25),
    ("number", "so 3 + 4 = 7\nThe answer is $1,234.50 dollars", "1234", 1),
    ("number", "First 3, then 12 apples\n\nand 13", "12", 1),
    ("number", "The answer is 8.", "18", 0),
    ("number", "I don't know", "18", 0),
    ("number", "The answer is 018", "18", 1),
    ("output", "Thus the final output of the code will be [1, 2] since", "[1 2]", 1),
    ("output", "It is printed: [[1 2] [3 4]]", "[[1 2] [3 4]]", 1),
    ("output", "The result is 5, and more words that follow the number", "5", 0),
    ("output", "we get 6.0", "6", 1),
]


def written(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_file_is_found_in_its_places(tmp_path: Path) -> None:
    for place in PLACES:
        folder = tmp_path / (place.replace("/", "-") or "here")
        written(folder / place / NAME, DOCUMENT)
        assert list(read_questions(TaskFiles(str(folder)), "tpo")) == FOUND


def test_a_file_that_is_there_twice(tmp_path: Path) -> None:
    for place in PLACES[:2]:
        written(tmp_path / place / NAME, DOCUMENT)
    with pytest.raises(DataError, match=r"found both .* and "):
        TaskFiles(str(tmp_path)).local_file(NAME)


def test_what_is_read_on_the_hub_is_read_as_it_is_here(tmp_path: Path) -> None:
    """The same code with the hub's address replaced by a folder's."""
    written(tmp_path / "L4NLP" / "LEval" / "c0" / "LEval" / "Exam" / NAME, DOCUMENT)
    files = TaskFiles("L4NLP/LEval", "c0")
    here = f"{tmp_path}/{{dataset}}/{{revision}}/"
    moved = files.on_hub.replace("hf://datasets/{dataset}@{revision}/", here)
    assert list(read_questions(dataclasses.replace(files, on_hub=moved), "tpo")) == FOUND


def test_a_hub_out_of_reach_says_what_else_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match=r"Exam/tpo\.jsonl can't be read: .* give a local folder"):
        list(read_questions(TaskFiles("L4NLP/LEval", "1" * 40), "tpo"))


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
        list(read_questions(TaskFiles(str(tmp_path)), task))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"input": "q", "outputs": ["A"]}', r"1 has no field instructions \(it has: input, out"),
        ("no json", r"tpo\.jsonl can't be read"),
    ],
)
def test_a_line_that_is_no_document(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / NAME).write_text(f"{line}\n")
    with pytest.raises(DataError, match=message):
        list(read_questions(TaskFiles(str(tmp_path)), "tpo"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file for each task; what the files hold is not looked at by a plan."""
    for name in FILES:
        write(tmp_path / "files" / name, name)
    return tmp_path


def section(**fields: Any) -> str:
    content = json.dumps({"kind": "leval", "from": "p", **fields})
    return f"name: x\nstages:\n  p: {PRETRAIN_LINE}\n  e: {content}\n"


def stage(folder: Path, **fields: Any) -> Stage:
    [found] = of(load(folder, section(**fields)), "e")
    return found


def test_local_files_are_their_content_wherever_they_are(folder: Path) -> None:
    found = stage(folder, dataset="./files")
    assert found.config["dataset"] == str(folder / "files")
    shutil.copytree(folder / "files", folder / "other" / "place")
    moved = str(folder / "other" / "place")
    assert stage(folder, dataset=moved).key == found.key
    write(folder / "other" / "place" / TPO, "something else")
    assert stage(folder, dataset=moved).key != found.key
    write(folder / "other" / "place" / TPO, TPO)
    assert stage(folder, dataset=moved).key == found.key


def test_only_the_files_of_the_tasks_count(folder: Path) -> None:
    fields: dict[str, Any] = {"dataset": "./files", "tasks": ["quality"]}
    before = stage(folder, **fields).key
    write(folder / "files" / TPO, "something else")
    assert stage(folder, **fields).key == before
    (folder / "files" / TPO).unlink()
    assert stage(folder, **fields).key == before


def test_the_hubs_data_is_to_be_pinned(folder: Path) -> None:
    assert told(folder, section()) == [
        "4 stages.e.revision: is missing: pin L4NLP/LEval to a commit, shown at "
        "https://huggingface.co/datasets/L4NLP/LEval/commits/main"
    ]
    assert stage(folder, revision="1" * 40).config["revision"] == "1" * 40


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"revision": "1", "tasks": ["codeu"]},
            f"tasks[0]: unknown task 'codeu'; did you mean 'codeU'? (allowed: {CLOSED})",
        ),
        ({"revision": "1", "tasks": ["tpo", "tpo"]}, "tasks[1]: names tpo twice"),
        ({"revision": "1", "tasks": []}, "tasks: found [], needs at least one entry"),
        (
            {"revision": "1", "tasks": ["tpo"], "context_length": 512},
            "context_length: found 512, needs more than the 512 tokens that an answer may have",
        ),
        (
            {"revision": "1", "format": "chat"},
            "format: the tokenizer byte has no chat template to write prompts in",
        ),
        (
            {"revision": "1", "format": "llama"},
            "format: found 'llama'; did you mean 'llama2'? (allowed: plain, chat, llama2)",
        ),
        (
            {"dataset": "./files/LEval", "tasks": ["tpo"]},
            "dataset: found neither {folder}/files/LEval/tpo.jsonl nor "
            "{folder}/files/LEval/LEval/Exam/tpo.jsonl nor "
            "{folder}/files/LEval/LEval-data/Closed-ended-tasks/tpo.jsonl",
        ),
        (
            {"dataset": "./files", "revision": "1"},
            "revision: {folder}/files is a local folder, which has no revision",
        ),
    ],
)
def test_what_is_wrong_with_a_section(folder: Path, fields: dict[str, Any], message: str) -> None:
    assert told(folder, section(**fields)) == [f"4 stages.e.{message.format(folder=folder)}"]


def test_a_folder_that_is_not_there(folder: Path) -> None:
    [message] = told(folder, section(dataset="./nowhere"))
    assert message.startswith(f"4 stages.e.dataset: no folder {folder}/nowhere nor ")


def test_planning_imports_nothing_heavy(folder: Path) -> None:
    write(folder / "sweep.yaml", section(dataset="./files"))
    code = f"from fope_lab.sweep import load_sweep; load_sweep('{folder / 'sweep.yaml'}')"
    assert heavy_modules(code) == []


@pytest.mark.parametrize(("metric", "text", "answer", "expected"), CASES)
def test_what_is_written_is_scored_as_published(
    metric: str, text: str, answer: str, expected: float
) -> None:
    assert METRICS[metric](text, answer) == expected


@pytest.mark.parametrize(
    ("story", "fact", "expected"),
    [
        ("True", "False", [1, 1]),
        ("It is true, not false.", "It is untrue", [1, 0]),
        ("False", "maybe", [0, 0]),
        ("", "FALSE.", [0, 1]),
    ],
)
def test_a_judgement_is_two_scores(story: str, fact: str, expected: list[float]) -> None:
    assert scores("sci_fi", [story, fact], "True [fact: False]") == expected


def test_numbers_are_equal_as_numbers_and_texts_without_spaces() -> None:
    assert exact_match("1e2", "100") == 1
    assert exact_match("1e2x", "100") == 0
    assert exact_match("N e w York", "new york") == 1
