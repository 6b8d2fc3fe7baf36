"""What several answers say together, against the formulas and a count by hand."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import numpy as np
import pytest
from answering import BYTE, Told
from hypothesis import given
from hypothesis import strategies as st

from fope_lab.data.problems import DataError
from fope_lab.evaluation.scoring.generating import Answer
from fope_lab.papers.resonance.leval_answers import (
    ANSWERS,
    Prompt,
    ScoredQuestion,
    ask,
    average,
    summary,
    write_answers,
)
from fope_lab.statistics.intervals import mean_and_error

ONE = ScoredQuestion(
    ((10, 0), (7, 3)), (Answer("yes", 4, True), Answer(" ", 9, False)), (100.0, 0.0)
)
OTHER = ScoredQuestion(((12, 5),), (Answer("no", 2, True),), (50.0,))


@given(st.lists(st.floats(0, 100), min_size=2, max_size=30))
def test_a_mean_has_the_error_of_its_sample(values: list[float]) -> None:
    mean, error = mean_and_error(values)
    assert mean == pytest.approx(statistics.fmean(values))
    assert error == pytest.approx(statistics.stdev(values) / len(values) ** 0.5, abs=1e-9)
    assert mean_and_error(values[:1]) == (values[0], None)


def test_a_summary_counts_prompts_and_answers() -> None:
    found = summary([ONE, OTHER])
    assert found.pop("stderr") == pytest.approx(50 / 3**0.5)
    assert found == {
        "questions": 2,
        "scores": 3,
        "score": 50,
        "longest_prompt": 12,
        "prompts_cut": 2,
        "tokens_left_out": 8,
        "answers_at_budget": 1,
        "answers_empty": 1,
        "mean_answer_tokens": 5,
    }


def test_the_average_of_tasks_is_not_that_of_their_questions() -> None:
    tasks = [{"score": 10.0, "stderr": 3.0}, {"score": 40.0, "stderr": 4.0}]
    assert average(tasks) == {"score": 25, "stderr": pytest.approx(2.5)}
    unknown = average([*tasks, {"score": 100.0, "stderr": None}])
    assert unknown == {"score": 50, "stderr": None}


def test_answers_are_left_as_lines(tmp_path: Path) -> None:
    write_answers([ONE.as_json(task="t"), OTHER.as_json(task="u")])(tmp_path)
    lines = (tmp_path / ANSWERS).read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0]) == {
        "task": "t",
        "scores": [100, 0],
        "prompts": [
            {"tokens": 10, "left_out": 0, "answer": "yes", "ended": True},
            {"tokens": 7, "left_out": 3, "answer": " ", "ended": False},
        ],
    }
    assert json.loads(lines[1])["task"] == "u"


def test_prompt_and_answer_are_within_the_context() -> None:
    prompts = [Prompt(np.arange(1, 11), 0)]

    def answered(context_length: int) -> list[Answer]:
        model = Told(lambda text: "yes")
        return ask(model, BYTE, prompts, context_length=context_length, max_new_tokens=5)

    assert answered(15) == [Answer("yes", 4, True)]
    with pytest.raises(AssertionError):
        answered(14)
    with pytest.raises(DataError, match="context_length: found 5, needs more than the 5 tokens"):
        answered(5)
