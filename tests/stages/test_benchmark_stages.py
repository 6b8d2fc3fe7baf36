"""LongBench and L-Eval in a sweep file: where their files are, and what is wrong with a section."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from heavy_imports import heavy_modules
from sweep_files import PRETRAIN_LINE, load, of, told, write

from fope_lab.data.benchmarks import leval, longbench
from fope_lab.sweep.graph import Stage

LONGBENCH = {task: f"data/{task}_e.jsonl" for task in longbench.TASKS}
LEVAL = {task: f"LEval/Exam/{task}.jsonl" for task in leval.TABLE_2}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file for each task; what the files hold is not looked at by a plan."""
    for kind, files in (("longbench", LONGBENCH), ("leval", LEVAL)):
        for name in files.values():
            write(tmp_path / "files" / kind / name, name)
    return tmp_path


def section(kind: str, **fields: Any) -> str:
    content = json.dumps({"kind": kind, "from": "p", **fields})
    return f"name: x\nstages:\n  p: {PRETRAIN_LINE}\n  e: {content}\n"


def stage(folder: Path, kind: str, **fields: Any) -> Stage:
    [found] = of(load(folder, section(kind, **fields)), "e")
    return found


@pytest.mark.parametrize(
    ("kind", "name"), [("longbench", LONGBENCH["trec"]), ("leval", LEVAL["tpo"])]
)
def test_local_files_are_their_content_wherever_they_are(
    folder: Path, kind: str, name: str
) -> None:
    found = stage(folder, kind, dataset=f"./files/{kind}")
    assert found.config["dataset"] == str(folder / "files" / kind)
    shutil.copytree(folder / "files" / kind, folder / "other" / "place")
    moved = str(folder / "other" / "place")
    assert stage(folder, kind, dataset=moved).key == found.key
    write(folder / "other" / "place" / name, "something else")
    assert stage(folder, kind, dataset=moved).key != found.key
    write(folder / "other" / "place" / name, name)
    assert stage(folder, kind, dataset=moved).key == found.key


def test_only_the_files_of_the_tasks_count(folder: Path) -> None:
    fields: dict[str, Any] = {"dataset": "./files/longbench", "tasks": ["trec"]}
    before = stage(folder, "longbench", **fields).key
    write(folder / "files" / "longbench" / LONGBENCH["samsum"], "something else")
    assert stage(folder, "longbench", **fields).key == before
    (folder / "files" / "longbench" / LONGBENCH["samsum"]).unlink()
    assert stage(folder, "longbench", **fields).key == before


def test_longbench_is_pinned_and_leval_is_to_be(folder: Path) -> None:
    assert stage(folder, "longbench").config["dataset"] == "THUDM/LongBench"
    named = stage(folder, "longbench", revision=longbench.REVISION)
    assert named.key == stage(folder, "longbench").key
    assert named.key != stage(folder, "longbench", revision="1" * 40).key
    assert told(folder, section("leval")) == [
        "4 stages.e.revision: is missing: pin L4NLP/LEval to a commit, shown at "
        "https://huggingface.co/datasets/L4NLP/LEval/commits/main"
    ]
    assert stage(folder, "leval", revision="1" * 40).config["revision"] == "1" * 40


TASKS = "gov_report, multi_news, trec, triviaqa, samsum"
CLOSED = "coursera, gsm100, quality, tpo, codeU, sci_fi, topic_retrieval_longchat"


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (
            "longbench",
            {"tasks": ["trec", "samsun"]},
            f"tasks[1]: unknown task 'samsun'; did you mean 'samsum'? (allowed: {TASKS})",
        ),
        (
            "leval",
            {"revision": "1", "tasks": ["codeu"]},
            f"tasks[0]: unknown task 'codeu'; did you mean 'codeU'? (allowed: {CLOSED})",
        ),
        ("longbench", {"tasks": ["trec", "trec"]}, "tasks[1]: names trec twice"),
        ("longbench", {"tasks": []}, "tasks: found [], needs at least one entry"),
        (
            "longbench",
            {"context_length": 512},
            "context_length: found 512, needs more than the 512 tokens that an answer of "
            "gov_report may have",
        ),
        (
            "longbench",
            {"tasks": ["triviaqa", "trec"], "context_length": 64},
            "context_length: found 64, needs more than the 64 tokens that an answer of trec may "
            "have",
        ),
        (
            "longbench",
            {"format": "chat"},
            "format: the tokenizer byte has no chat template to write prompts in",
        ),
        (
            "longbench",
            {"format": "llama"},
            "format: found 'llama'; did you mean 'llama2'? (allowed: plain, chat, llama2)",
        ),
        (
            "longbench",
            {"rouge": "rouge_score"},
            "rouge: found 'rouge_score'; did you mean 'rouge-score'? (allowed: rouge-score, rouge)",
        ),
        ("leval", {"revision": "1", "rouge": "rouge"}, None),
        (
            "longbench",
            {"dataset": "./files/leval"},
            "dataset: found neither {folder}/files/leval/gov_report_e.jsonl nor "
            "{folder}/files/leval/data/gov_report_e.jsonl",
        ),
        (
            "longbench",
            {"dataset": "./files/longbench", "revision": "1"},
            "revision: {folder}/files/longbench is a local folder, which has no revision",
        ),
    ],
)
def test_what_is_wrong_with_a_section(
    folder: Path, kind: str, fields: dict[str, Any], message: str | None
) -> None:
    found = told(folder, section(kind, **fields))
    if message is None:
        assert len(found) == 1
        assert "unknown key 'rouge'" in found[0]
    else:
        assert found == [f"4 stages.e.{message.format(folder=folder)}"]


def test_a_folder_that_is_not_there(folder: Path) -> None:
    [message] = told(folder, section("longbench", dataset="./nowhere"))
    assert message.startswith(f"4 stages.e.dataset: no folder {folder}/nowhere nor ")


def test_planning_imports_nothing_heavy(folder: Path) -> None:
    write(folder / "sweep.yaml", section("longbench", dataset="./files/longbench"))
    code = f"from fope_lab.sweep import load_sweep; load_sweep('{folder / 'sweep.yaml'}')"
    assert heavy_modules(code) == []
