"""L-Eval in a sweep file: where its files are, and what is wrong with a section."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from heavy_imports import heavy_modules
from sweep_files import PRETRAIN_LINE, load, of, told, write

from fope_lab.papers.resonance import leval_questions as leval
from fope_lab.sweep.graph import Stage

FILES = [f"LEval/Exam/{task}.jsonl" for task in leval.TABLE_2]
TPO = "LEval/Exam/tpo.jsonl"


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


CLOSED = "coursera, gsm100, quality, tpo, codeU, sci_fi, topic_retrieval_longchat"


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
            "context_length: found 512, needs more than the 512 tokens that an answer of tpo may "
            "have",
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
