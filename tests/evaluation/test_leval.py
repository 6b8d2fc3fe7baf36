"""L-Eval: a model that knows is always right, documents are cut and counted, the stage's rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from answering import BYTE, Told
from measured import measured
from sections import read_section

from fope_lab.config.options import options_of
from fope_lab.data.problems import DataError
from fope_lab.evaluation.context import run
from fope_lab.papers.resonance.leval import LEval
from fope_lab.papers.resonance.leval_answers import ScoredQuestion
from fope_lab.papers.resonance.leval_questions import TABLE_2, TASKS, LEvalQuestion
from fope_lab.store import Store

ANSWERS = {
    "coursera": ("AC", "AC"),
    "gsm100": ("18", "He has 3 + 15. The answer is 18."),
    "quality": ("B", "B"),
    "tpo": ("D", "D. because"),
    "codeU": ("[1 2]", "so the final output will be [1, 2]"),
    "sci_fi": ("True [fact: False]", "True"),
    "topic_retrieval_longchat": ("the benefits of tea", "The topic is the benefits of tea."),
}
"""For each task a right answer, and what a model writes that finds it."""
QUESTION = "Is it so? Answer this question based on the world described in the document."


def leval(
    model: Told,
    tokenizer: Any,
    task: str,
    questions: list[LEvalQuestion],
    context_length: int,
    progress: Callable[[int], None] = lambda prompts: None,
    **options: Any,
) -> list[ScoredQuestion]:
    stage = LEval(from_="m", **options)
    return stage.answered(model, tokenizer, task, questions, context_length, progress)


def question(task: str, document: str = "[key]") -> LEvalQuestion:
    return LEvalQuestion(document, QUESTION, ANSWERS[task][0])


def knows(task: str) -> Callable[[str], str]:
    def say(text: str) -> str:
        if "[key]" in text:
            return ANSWERS[task][1]
        return "false, it is not" if "real-world" in text else "I can't see it"

    return say


@pytest.mark.parametrize("task", TASKS)
def test_a_model_that_finds_the_answer_has_full_marks(task: str) -> None:
    examples = [question(task), question(task, "nothing"), question(task)]
    done: list[int] = []
    found = leval(
        Told(knows(task)), BYTE, task, examples, context_length=2000, progress=done.append
    )
    each = 2 if task == "sci_fi" else 1
    right = (100.0,) * each
    wrong = {"coursera": (25.0,), "sci_fi": (0.0, 100.0)}.get(task, (0.0,))
    assert [one.scores for one in found] == [right, wrong, right]
    assert all(left_out == 0 for one in found for _, left_out in one.asked)
    assert done[-1] == 3 * each


@pytest.mark.parametrize("task", TASKS)
def test_a_prompt_is_the_published_one(task: str) -> None:
    def prompts(format: str) -> list[str]:
        seen: list[str] = []

        def say(text: str) -> str:
            seen.append(text)
            return "A"

        leval(Told(say), BYTE, task, [question(task, "{x}")], context_length=2000, format=format)
        return sorted(seen, key="real-world".__contains__)

    instructions = TASKS[task].instructions
    exam = (
        "Document is as follows. {x} \nQuestion: " + QUESTION + ".  Please directly give answer "
        "without any additonal output or explanation "
    )
    continued = "{x}\n\n" + QUESTION
    is_exam = task in ("coursera", "quality", "tpo", "sci_fi")
    asked = exam if is_exam else continued
    closing = "" if task in ("gsm100", "codeU") else "[/INST]"
    lead = "\nAnswer:" * is_exam
    fact = [
        "Is it so? Answer this question based on the real-world knowledge and facts up until your "
        "last training\nAnswer:"
    ] * (task == "sci_fi")
    by_appearance = sorted([instructions + asked + lead, *fact])
    assert sorted(prompts("plain")) == by_appearance
    llama = f"[INST]<<SYS>>\n{instructions}\n<</SYS>>\n\n{asked}{closing}{lead}"
    assert sorted(prompts("llama2")) == sorted([llama, *fact])


@pytest.mark.parametrize(("task", "kept"), [("quality", slice(0, 50)), ("codeU", slice(50, 100))])
def test_a_long_document_is_cut_at_its_end_or_codes_at_its_beginning(
    task: str, kept: slice
) -> None:
    document = "".join(chr(33 + index % 90) for index in range(100))
    seen: list[str] = []

    def say(text: str) -> str:
        seen.append(text)
        return "A"

    def asked(document: str, context_length: int) -> tuple[int, int]:
        example = question(task, document)
        [one] = leval(Told(say), BYTE, task, [example], context_length=context_length)
        return one.asked[0]

    tokens, _ = asked(document, 3000)
    assert asked(document, 512 + tokens - 50) == (tokens - 50, 50)
    assert document[kept] in seen[1]
    assert seen[1] == seen[0].replace(document, document[kept])
    with pytest.raises(DataError, match=f"{tokens - 100} tokens without its document"):
        asked(document, 512 + tokens - 101)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in L-Eval's format, as on the hub."""
    path = tmp_path / "leval" / "LEval" / "Exam"
    path.mkdir(parents=True)
    for task in TASKS:
        answer = ANSWERS[task][0]
        rows = [
            {"input": "[key]", "instructions": [QUESTION] * 2, "outputs": [answer] * 2},
            {"input": "nothing", "instructions": [QUESTION], "outputs": [answer]},
        ]
        about = {"source": "x", "evaluation": "exam"}
        text = "".join(json.dumps({**row, **about}) + "\n" for row in rows)
        (path / f"{task}.jsonl").write_text(text)
    return tmp_path / "leval"


def test_a_stage_logs_every_task_and_the_average(
    parents: dict[str, Path], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fope_lab.papers.resonance.leval.MAX_NEW_TOKENS", 8)  # to be quick
    section = {"kind": "leval", "from": "m", "dataset": str(folder), "context_length": 1200}
    stage = read_section(LEval, {**section, "tasks": ["gsm100", "sci_fi"], "limit": 2})
    stage_folder = Store(tmp_path / "store").folder("leval", "key")
    with stage_folder.begin("test", {}) as attempt:
        attempt.finish(run(stage, attempt.writer, parents))
    rows = {name: value for row in stage_folder.rows() for name, value in row.values.items()}
    names = ("leval_gsm100", "leval_sci_fi", "leval_average")
    assert rows == {name + end: 0.0 for name in names for end in ("", "_stderr")}
    result = stage_folder.result()
    assert result is not None
    assert {name for name, _ in measured(result)} == {one.name for one in stage.metrics()}
    assert result["recorded"]["tasks"]["sci_fi"]["questions"] == 2
    assert result["recorded"]["tasks"]["sci_fi"]["scores"] == 4
    assert result["recorded"]["tasks"]["gsm100"]["max_new_tokens"] == 8
    assert result["recorded"]["tasks"]["gsm100"]["instructions"] == TASKS["gsm100"].instructions
    assert result["recorded"]["context_length"] == 1200
    checkpoint = stage_folder.checkpoint()
    assert checkpoint is not None
    lines = (checkpoint.path / "answers.jsonl").read_text().splitlines()
    assert [len(json.loads(line)["prompts"]) for line in lines] == [1, 1, 2, 2]
    progress = stage_folder.progress()
    assert progress is not None
    assert progress["step"] == progress["total"] == 6


def test_the_papers_table_has_six_tasks() -> None:
    assert options_of(LEval)["tasks"].default == TABLE_2
    assert set(TABLE_2) < set(TASKS)
