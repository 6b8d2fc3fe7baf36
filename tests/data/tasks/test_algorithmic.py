"""The algorithmic tasks: each answer by Python's own means, and the distributions of the paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fope_lab.data.problems import DataError
from fope_lab.data.rows import IGNORED, RowSource
from fope_lab.data.tasks.algorithmic import SUBTASKS
from fope_lab.data.tasks.algorithmic_task import HELD_OUT, AlgorithmicTask
from fope_lab.data.tokenizers.tokenizer import SymbolTokenizer, load_tokenizer

Symbols = list[str]
LONGEST = 50
ROWS = 2500
IMPROBABLE = 1e-4


def majority(symbols: Symbols) -> str:
    (first, most), *others = Counter(symbols).most_common()
    assert all(count < most for _, count in others), "no symbol is the most frequent"
    return first


def added(symbols: Symbols) -> Symbols:
    a, b = "".join(symbols).removesuffix("=").split("+")
    assert all(number == "0" or number.startswith("1") for number in (a, b))
    return list(f"{int(a, 2) + int(b, 2):b}")


ANSWERS: Mapping[str, Callable[[Symbols], Symbols]] = {
    "addition": added,
    "bin_majority": lambda symbols: [majority(symbols)],
    "bin_majority_interleave": lambda symbols: [majority(symbols[i::3]) for i in range(3)],
    "majority": lambda symbols: [majority(symbols)],
    "parity": lambda symbols: ["eo"[symbols.count("1") % 2]],
    "repeat_copy": lambda symbols: symbols,
    "sort": lambda symbols: sorted(symbols, key=int),
    "unique_copy": lambda symbols: symbols,
}


def source(
    subtask: str, seed: int = 0, longest: int = LONGEST
) -> tuple[RowSource, SymbolTokenizer]:
    definition = SUBTASKS[subtask]
    tokenizer = load_tokenizer(definition.tokenizer)
    assert isinstance(tokenizer, SymbolTokenizer)
    task = AlgorithmicTask(subtask=subtask, longest=longest)  # type: ignore[arg-type]
    return task.rows(tokenizer, definition.tokens(longest) - 1, seed), tokenizer


def strings(subtask: str, longest: int = LONGEST) -> list[tuple[Symbols, Symbols]]:
    """Inputs and answers of the first rows, read off the tokens alone."""
    rows, tokenizer = source(subtask, longest=longest)
    name = {number: symbol for symbol, number in tokenizer.vocabulary().items()}
    found = []
    for ids in rows.rows(0, ROWS).ids:
        text = [name[number] for number in ids]
        end = text.index("<eos>")
        assert set(text[end + 1 :]) <= {"<pad>"}
        assert text[0] == "<bos>"
        border = "=" if subtask == "addition" else "<sep>"
        middle = text.index(border)
        first = middle + 1 if border == "=" else middle
        found.append((text[1:first], text[middle + 1 : end]))
    return found


@pytest.mark.parametrize("subtask", SUBTASKS)
def test_the_answers_are_right_and_the_rows_are_just_wide_enough(subtask: str) -> None:
    for longest in (9, LONGEST):
        for symbols, answer in strings(subtask, longest):
            assert answer == ANSWERS[subtask](symbols)
            assert set(symbols + answer) <= set(SUBTASKS[subtask].symbols)
    rows = source(subtask, longest=9)[0].rows(0, 2 * ROWS)
    assert rows.labels[:, -1].max() != IGNORED, "no string fills the row"


@pytest.mark.parametrize("subtask", SUBTASKS)
def test_the_lengths_of_inputs_are_uniform(subtask: str) -> None:
    counts = Counter(len(symbols) for symbols, _ in strings(subtask))
    assert min(counts) == SUBTASKS[subtask].least
    if subtask == "bin_majority_interleave":  # 3 has no 2 below it, and 51 is too long for 49, 50
        lengths = {3 * bits: 3 for bits in range(2, 16)} | {3: 2, 48: 4}
    else:
        lengths = dict.fromkeys(range(SUBTASKS[subtask].least, LONGEST + 1), 1)
    assert counts.keys() == lengths.keys()
    expected = np.array([lengths[one] for one in sorted(lengths)]) / sum(lengths.values())
    observed = [counts[one] for one in sorted(lengths)]
    assert stats.chisquare(observed, ROWS * expected).pvalue > IMPROBABLE


def uniform(values: list[int], low: int, high: int) -> float:
    counts = np.bincount(np.array(values) - low, minlength=high - low + 1)
    return float(stats.chisquare(counts).pvalue)


def test_the_number_of_zeros_is_uniform_without_the_tie() -> None:
    drawn = [symbols for symbols, _ in strings("bin_majority", longest=4)]
    zeros = [symbols.count("0") for symbols in drawn if len(symbols) == 4]
    assert 2 not in zeros
    assert uniform([zero - (zero > 2) for zero in zeros], 0, 3) > IMPROBABLE
    single = [
        symbols.index("0") for symbols in drawn if len(symbols) == 4 == symbols.count("1") + 1
    ]
    assert uniform(single, 0, 3) > IMPROBABLE


def test_the_number_of_ones_of_parity_is_uniform() -> None:
    drawn = [symbols for symbols, _ in strings("parity", longest=5)]
    ones = [symbols.count("1") for symbols in drawn if len(symbols) == 5]
    assert uniform(ones, 0, 5) > IMPROBABLE


def test_letters_are_uniform_where_one_is_the_most_frequent() -> None:
    drawn = [symbols for symbols, _ in strings("majority", longest=3)]
    letters = [ord(symbols[0]) - ord("a") for symbols in drawn if len(symbols) == 1]
    assert uniform(letters, 0, 25) > IMPROBABLE
    assert all(len(set(symbols)) == 1 for symbols in drawn if len(symbols) == 2)
    three = [len(set(symbols)) for symbols in drawn if len(symbols) == 3]
    # Of 26³ strings, 26·25·3 have a letter twice and 26 have it three times.
    assert stats.binomtest(three.count(2), len(three), 75 / 76).pvalue > IMPROBABLE


def test_different_symbols_are_a_uniform_choice() -> None:
    for subtask in ("unique_copy", "sort"):
        drawn = [symbols for symbols, _ in strings(subtask)]
        assert all(len(set(symbols)) == len(symbols) for symbols in drawn)
        firsts = [int(symbols[0]) for symbols in drawn]
        assert uniform(firsts, 0, 149) > IMPROBABLE


def test_the_sum_splits_its_length_uniformly() -> None:
    drawn = [symbols for symbols, _ in strings("addition", longest=7)]
    places = [symbols.index("+") for symbols in drawn if len(symbols) == 7]
    assert uniform(places, 1, 4) > IMPROBABLE


@given(
    subtask=st.sampled_from(sorted(SUBTASKS)),
    first=st.integers(0, 3000),
    count=st.integers(1, 40),
    seed=st.integers(0, 3),
)
def test_a_row_depends_on_the_seed_and_its_number_alone(
    subtask: str, first: int, count: int, seed: int
) -> None:
    together = source(subtask, seed)[0].rows(first, count)
    single = source(subtask, seed)[0]
    for number in range(count):
        row = single.rows(first + number, 1)
        assert np.array_equal(row.ids[0], together.ids[number])
        assert np.array_equal(row.labels[0], together.labels[number])


@pytest.mark.parametrize("subtask", SUBTASKS)
def test_the_loss_is_on_the_answer_and_the_end_alone(subtask: str) -> None:
    rows, tokenizer = source(subtask)
    ids, labels, documents, sizes = rows.rows(0, 500)
    assert documents is None
    assert np.array_equal(sizes, (ids != tokenizer.pad_id).sum(1))  # type: ignore[arg-type]
    border = tokenizer.vocabulary()["=" if subtask == "addition" else "<sep>"]
    after = np.cumsum(ids == border, axis=1) - (ids == border) > 0
    assert np.array_equal(labels, np.where(after & (ids != tokenizer.pad_id), ids, IGNORED))


@pytest.mark.parametrize("subtask", SUBTASKS)
def test_another_seed_gives_other_rows_and_the_same_held_out_ones(subtask: str) -> None:
    one, other = (source(subtask, seed)[0].rows(0, 100).ids for seed in (0, 1))
    assert not np.array_equal(one, other)
    definition = SUBTASKS[subtask]
    tokenizer = load_tokenizer(definition.tokenizer)
    task = AlgorithmicTask(subtask=subtask)  # type: ignore[arg-type]
    held_out = task.held_out_rows(tokenizer, definition.tokens(LONGEST) - 1)
    assert held_out.epoch == HELD_OUT
    whole = held_out.rows(0, HELD_OUT)
    assert not np.array_equal(whole.ids[:100], one)
    assert np.array_equal(held_out.rows(HELD_OUT - 7, 20).ids[7:], whole.ids[:13])
    trained = {row.tobytes() for row in source(subtask)[0].rows(0, HELD_OUT).ids}
    both = sum(row.tobytes() in trained for row in whole.ids)
    assert both < 0.35 * HELD_OUT  # only short inputs can be the same


@pytest.mark.parametrize(
    ("options", "tokenizer", "length", "expected"),
    [
        ({"subtask": "sort"}, "symbols:sort", 101, "sort needs 103 tokens for inputs of up to"),
        ({"subtask": "sort"}, "byte", 102, "sort needs tokenizer: symbols:sort, and found byte"),
        ({"subtask": "parity"}, "symbols:majority", 102, "found symbols:majority"),
    ],
)
def test_wrong_tokenizers_and_lengths(
    options: dict[str, str], tokenizer: str, length: int, expected: str
) -> None:
    task = AlgorithmicTask(**options)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=expected):
        task.rows(load_tokenizer(tokenizer), length, 0)
    with pytest.raises(DataError, match=expected):
        task.held_out_rows(load_tokenizer(tokenizer), length)


@pytest.mark.parametrize(
    ("subtask", "longest", "expected"),
    [
        ("unique_copy", 151, "longest: found 151, and an input of unique_copy has at most 150"),
        ("addition", 3, "longest: found 3, and no input of addition has at most 3 symbols"),
        ("bin_majority_interleave", 2, "no input of bin_majority_interleave has at most 2"),
    ],
)
def test_impossible_lengths(subtask: str, longest: int, expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        AlgorithmicTask(subtask=subtask, longest=longest)  # type: ignore[arg-type]
