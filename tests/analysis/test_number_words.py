"""The words of an analysis's numbers."""

from __future__ import annotations

import pytest

from fope_lab.analysis.base import NumberWords

SAID = NumberWords(
    {
        "{kind}_share_{where}": "share of {kind}, {where}",
        "{kind}_share": "share of {kind}",
        "count": "pairs, count",
    },
    {"own": "the current token", "back{offset}": "the token {offset} back", "a_b": "A and B"},
)


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


@pytest.mark.parametrize("name", ["counts", "_share", "the count"])
def test_a_name_without_words_is_shown_without_underscores(name: str) -> None:
    assert SAID.declared(name) is None
    assert SAID.of(name) == name.replace("_", " ")
