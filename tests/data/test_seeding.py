"""Random numbers at any place of a stream."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fope_lab.data.seeding import below, permutation, random_words


@given(st.integers(0, 10**12), st.integers(1, 20), st.integers(1, 13))
def test_a_row_is_the_same_whichever_are_drawn_with_it(first: int, rows: int, words: int) -> None:
    whole = random_words(("a", 1), first, rows, words)
    assert whole.shape == (rows, words)
    for index in range(rows):
        assert (random_words(("a", 1), first + index, 1, words)[0] == whole[index]).all()


def test_streams_differ_by_their_names() -> None:
    names = [("a", 1), ("a", 2), ("b", 1), ("a", "1"), ("a", 1, 0)]
    assert len({tuple(random_words(name, 0, 1, 2)[0]) for name in names}) == len(names)


def test_the_stream_stays_what_it_is() -> None:
    """Stored results depend on these values: they may never change."""
    assert random_words(("fixed", 0), 3, 1, 2).tolist() == [
        [6577293517335860271, 12193210726653759953]
    ]
    assert permutation(("fixed", 0), 6).tolist() == [3, 1, 0, 4, 2, 5]


@given(st.integers(1, 2**40))
def test_numbers_lie_below_their_limit(limit: int) -> None:
    words = np.array([0, 2**63, 2**64 - 1], np.uint64)
    numbers = below(words, limit)
    assert numbers[0] == 0
    assert numbers[1] == limit // 2
    assert 0 <= numbers[2] < limit


def test_numbers_are_uniform() -> None:
    numbers = below(random_words(("uniform",), 0, 1, 9000)[0], 9)
    assert stats.chisquare(np.bincount(numbers, minlength=9)).pvalue > 0.001


@given(st.integers(1, 300), st.integers(0, 5))
def test_a_permutation_has_every_item_once(count: int, epoch: int) -> None:
    assert sorted(permutation(("p", epoch), count).tolist()) == list(range(count))
