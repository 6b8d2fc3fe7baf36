"""LongBench's metrics against arithmetic by hand, a plain count, and the packages they are of."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score import rouge_scorer

from fope_lab.evaluation.longbench.metrics import (
    classification,
    normalised,
    qa_f1,
    rouge_l,
    rouge_l_of_words,
)

TREC = ("Food", "Date", "Other number", "Number of something", "Description of a person")
WORDS = st.lists(st.sampled_from(["the", "cat", "Cat", "sat.", "on", "mat!"]), max_size=6).map(
    " ".join
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Cat, an animal!", "cat animal"),
        ("theatre a-ha", "theatre aha"),
        ("A.\nB", "b"),
        ("", ""),
    ],
)
def test_normalised(text: str, expected: str) -> None:
    assert normalised(text) == expected


@pytest.mark.parametrize(
    ("prediction", "answer", "expected"),
    [
        ("The Eiffel Tower", "eiffel tower.", 1.0),
        ("tower of Paris", "Eiffel Tower", 2 * (1 / 3) * (1 / 2) / (1 / 3 + 1 / 2)),
        ("no no no", "no", 2 * (1 / 3) / (4 / 3)),
        ("Rome", "Paris", 0.0),
        ("the", "the", 0.0),  # nothing is left of either
        ("", "x", 0.0),
    ],
)
def test_qa_f1_by_hand(prediction: str, answer: str, expected: float) -> None:
    assert qa_f1(prediction, answer) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("prediction", "answer", "expected"),
    [
        ("Type: Date", "Date", 1.0),
        ("Date or Food", "Date", 0.5),
        ("Date, Food, Other number", "Food", 1 / 3),
        ("date", "Date", 0.0),
        ("Food", "Date", 0.0),
        ("", "Date", 0.0),
    ],
)
def test_classification_by_hand(prediction: str, answer: str, expected: float) -> None:
    assert classification(prediction, answer, TREC) == expected


def test_a_class_that_is_part_of_the_right_one_is_no_other_class() -> None:
    classes = ("Code", "Post Code", "Other")
    assert classification("Post Code", "Post Code", classes) == 1
    assert classification("Post Code", "Code", classes) == 0.5
    assert classification("Post Code, Other", "Post Code", classes) == 0.5


@given(prediction=WORDS, answer=WORDS)
@settings(max_examples=60)
def test_rouge_l_is_that_of_the_package_and_of_a_plain_count(prediction: str, answer: str) -> None:
    found = rouge_l(prediction, answer)
    scorer = rouge_scorer.RougeScorer(["rougeL"])
    assert found == scorer.score(answer, prediction)["rougeL"].fmeasure
    one, other = (re.findall("[a-z]+", text.lower()) for text in (prediction, answer))
    assert found == pytest.approx(f_of(longest_common(one, other), len(one), len(other)))


def longest_common(one: list[str], other: list[str]) -> int:
    """Every choice of words of one text, tried in the other."""
    return max(
        size
        for size in range(len(one) + 1)
        for words in itertools.combinations(one, size)
        if is_subsequence(words, other)
    )


def is_subsequence(words: tuple[str, ...], of: list[str]) -> bool:
    rest = iter(of)
    return all(word in rest for word in words)


def f_of(common: int, found: int, wanted: int) -> float:
    return 2 * common / (found + wanted) if common else 0.0


@pytest.mark.parametrize(
    ("prediction", "answer", "expected"),
    [
        ("the cat sat on the mat", "the cat was on the mat", 0.7999999950000002),
        ("The cat sat. It ran away.", "It ran. The cat sat down", 0.8333333283333335),
        ("a b c d", "d c b a", 0.24999999500000009),
        ("one two. two three", "two three one", 0.999999995),
        ("Same words here.", "Same words here.", 0.999999995),
        (" . a", "a", 0.6666666622222223),
        ("x y", "p q", 0.0),
        ("", "a", 0.0),
        ("...", "a", 0.0),
    ],
)
def test_rouge_l_of_words_is_what_the_package_rouge_gives(
    prediction: str, answer: str, expected: float
) -> None:
    """Its version 1.0.1 gave these numbers."""
    assert rouge_l_of_words(prediction, answer) == pytest.approx(expected, abs=1e-12)


def test_long_sentences_are_counted_too() -> None:
    text = " ".join(f"w{i}" for i in range(1200))
    assert rouge_l_of_words(text, text) == pytest.approx(1, abs=1e-7)
