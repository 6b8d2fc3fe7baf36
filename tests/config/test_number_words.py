"""The words of an analysis's numbers, as a method declares them."""

from __future__ import annotations

from typing import Annotated

import pytest

from fope_lab.config.number_words import NumberWords, declared_words, words_of_number

SAID = NumberWords(
    {
        "{kind}_share_{where}": "share of {kind}, {where}",
        "{kind}_share": "share of {kind}",
        "count": "pairs, count",
    },
    {"own": "the current token", "back{offset}": "the token {offset} back", "a_b": "A and B"},
)


class Says:
    def numbers(self, arrays: Unknown) -> Annotated[dict[str, float], SAID]:  # type: ignore[name-defined]  # noqa: F821
        return {}


class Silent:
    def numbers(self) -> dict[str, float]:
        return {}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("count", "pairs, count"),
        ("own_share", "share of the current token"),
        ("back12_share", "share of the token 12 back"),
        ("a_b_share_p_rope", "share of A and B, p-rope"),
        ("other_share", "share of other"),
    ],
)
def test_words_by_the_first_pattern_that_fits(name: str, words: str) -> None:
    assert SAID.of(name) == words
    assert words_of_number(Says.numbers, name) == words


@pytest.mark.parametrize("name", ["counts", "_share", "the count"])
def test_a_name_without_words_is_shown_without_underscores(name: str) -> None:
    assert SAID.of(name) is None
    assert words_of_number(Says.numbers, name) == name.replace("_", " ")


def test_a_method_may_declare_nothing() -> None:
    assert declared_words(Silent.numbers) is None
    assert words_of_number(Silent.numbers, "a_b") == "a b"
