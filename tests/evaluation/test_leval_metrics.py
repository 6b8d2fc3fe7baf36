"""L-Eval's exact match: what its own script gives for the same texts."""

from __future__ import annotations

import pytest

from fope_lab.papers.resonance.leval_metrics import METRICS, exact_match

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
    ("contained", "The first topic is The  Benefits of Yoga.", "the benefits of yoga", 1),
    ("contained", "a\nThe topic is yoga\nbenefits", "benefits", 0),
    ("contained", "12.0", "12", 1),
]


@pytest.mark.parametrize(("metric", "text", "answer", "expected"), CASES)
def test_what_is_written_is_scored_as_published(
    metric: str, text: str, answer: str, expected: float
) -> None:
    assert METRICS[metric]([text], answer) == [expected]


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
    assert METRICS["judgement"]([story, fact], "True [fact: False]") == expected


def test_numbers_are_equal_as_numbers_and_texts_without_spaces() -> None:
    assert exact_match("1e2", "100") == 1
    assert exact_match("1e2x", "100") == 0
    assert exact_match("N e w York", "new york") == 1
