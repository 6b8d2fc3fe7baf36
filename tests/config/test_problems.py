"""A problem becomes one sentence; errors keep every problem, and survive pickling."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from fope_lab.config.problems import (
    ConfigError,
    Problem,
    SweepError,
    collecting,
    counted,
    in_few_words,
    nearest_name,
    shown,
    unknown_name,
)


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Problem((), "is empty"), "is empty"),
        (Problem(("a", 0, "b"), "found 1", "text"), "a[0].b: found 1, needs text"),
        (
            unknown_name(("a",), "color", "Blu", ["blue", "red"]),
            "a: unknown color 'Blu'; did you mean 'blue'? (allowed: blue, red)",
        ),
        (unknown_name((), "color", None, []), "unknown color nothing (allowed: none)"),
        (Problem(("a",), "is wrong", file=Path("x.yaml"), line=3), "x.yaml:3: a: is wrong"),
        (Problem((), "is wrong", file=Path("x.yaml")), "x.yaml: is wrong"),
    ],
)
def test_a_problem_is_one_sentence(problem: Problem, text: str) -> None:
    assert str(problem) == text


def test_problems_are_collected_under_their_place() -> None:
    problems: list[Problem] = []
    with collecting(problems, ("stages", "p")):
        raise ConfigError([Problem(("a",), "is wrong"), Problem(("b",), "is wrong")])
    with collecting(problems):
        pass
    assert [problem.field for problem in problems] == ["stages.p.a", "stages.p.b"]


def test_an_error_keeps_each_problem_once_and_survives_pickling() -> None:
    error = ConfigError([Problem(("a",), "is wrong")] * 2, at=("data",))
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error) == "data.a: is wrong"
    assert copy.problems == error.problems
    assert str(ConfigError("is wrong")) == "is wrong"


def test_problems_of_a_sweep_are_in_the_order_of_their_lines() -> None:
    file = Path("x.yaml")
    wrong = [Problem((str(line),), "is wrong", file=file, line=line) for line in (3, 1, 2)]
    assert [problem.line for problem in SweepError(wrong).problems] == [1, 2, 3]


def test_the_nearest_name_ignores_case_and_needs_likeness() -> None:
    assert nearest_name("ROPEE", ["fope", "rope"]) == "rope"
    assert nearest_name("xyz", ["fope", "rope"]) is None


def test_values_are_shown_as_yaml_writes_them() -> None:
    assert [shown(value) for value in (None, True, False, 1, "a")] == [
        "nothing",
        "true",
        "false",
        "1",
        "'a'",
    ]
    assert len(shown("x" * 200)) == 78


def test_options_in_few_words_name_the_first_of_many_files() -> None:
    files = [f"/texts/{i}.txt" for i in range(210)]
    options = {"type": "files", "files": files, "pair": ["a", "b"]}
    assert in_few_words(options) == "type files, files /texts/0.txt and 209 more, pair ['a', 'b']"


def test_numbers_of_things() -> None:
    assert [counted(n) for n in (0, 1, 1200)] == ["0 stages", "1 stage", "1,200 stages"]
    assert counted(1, "result") == "1 result"
