"""PosGen's sequences against the paper's formulas in plain loops, and their splits."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fope_lab.data.mixture import TrainingData
from fope_lab.data.problems import DataError
from fope_lab.data.recipe import TASKS, parse_data
from fope_lab.data.rows import IGNORED
from fope_lab.data.tasks.posgen import PosGenTask, SequenceSet, Split, Subtask, generate, shuffled
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer

SUBTASKS = get_args(Subtask)
SPLITS: tuple[Split, ...] = get_args(Split)
BYTE = ByteTokenizer()


def by_hand(task: str, begun: list[int], length: int, modulus: int, j: int, k: int) -> list[int]:
    """§5 of the paper, one token at a time."""
    x = list(begun)
    while len(x) < length:
        l = len(x)  # noqa: E741
        t = l - (j + k)
        near = [x[l - i] for i in range(1, k + 1)]
        if task == "recursive":
            far = [x[l - i] for i in range(k + 1, k + j + 1)]
        elif task == "cot":
            far = [x[i] for i in range(j)]
        else:
            far = [x[t // 2 + i] for i in range(j)]
        x.append((sum(near) + sum(far)) % modulus)
    return x


SIZES: dict[str, Any] = {
    "modulus": st.integers(2, 300),
    "j": st.integers(1, 3),
    "k": st.integers(1, 3),
}


@settings(deadline=None)
@given(st.sampled_from(SUBTASKS), st.integers(0, 90), st.integers(0, 2**31), *SIZES.values())
def test_sequences_are_the_papers(
    task: str, more: int, seed: int, modulus: int, j: int, k: int
) -> None:
    found = generate(task, 3, j + k + more, modulus=modulus, j=j, k=k, seed=seed)
    assert found.dtype == np.int64
    assert found.shape == (3, j + k + more)
    for row in found.tolist():
        assert 0 <= min(row) <= max(row) < modulus
        assert row == by_hand(task, row[: j + k], j + k + more, modulus, j, k)


def test_a_seed_draws_the_same_beginnings_for_all_subtasks_counts_and_lengths() -> None:
    first = generate("cot", 5, 64, seed=3)
    assert (generate("cot", 9, 30, seed=3)[:5] == first[:, :30]).all()
    assert (generate("recursive", 5, 4, seed=3) == first[:, :4]).all()
    assert (generate("cot", 5, 64, seed=4)[:, :4] != first[:, :4]).any()
    drawn = generate("cot", 4000, 4, modulus=5)
    assert (np.abs(np.bincount(drawn.ravel()) - 3200) < 300).all()  # six deviations


@pytest.mark.parametrize(
    ("arguments", "sizes", "expected"),
    [
        (("recursiv", 1, 9), {}, "unknown subtask 'recursiv'; did you mean 'recursive'?"),
        (("cot", 0, 9), {}, "found 0 sequences, needs at least 1"),
        (("cot", 1, 3), {}, "found a length of 3, needs at least j + k = 4 tokens"),
        (("cot", 1, 9), {"modulus": 1}, "modulus: found 1, needs at least 2"),
        (("cot", 1, 9), {"j": 0}, "j: found 0, needs at least 1"),
        (("cot", 1, 9), {"k": -2}, "k: found -2, needs at least 1"),
    ],
)
def test_what_can_not_be_generated(arguments: Any, sizes: dict[str, int], expected: str) -> None:
    with pytest.raises(DataError) as caught:
        generate(*arguments, **sizes)
    assert str(caught.value).startswith(expected)


def test_a_task_of_too_many_beginnings_has_sequences_but_no_splits() -> None:
    row = generate("recursive", 1, 30, modulus=1000, j=9, k=9)[0].tolist()
    assert row == by_hand("recursive", row[:18], 30, 1000, 9, 9)
    with pytest.raises(DataError, match=r"modulus: found 17, which has 17\^1000000001 beginnings"):
        SequenceSet(subtask="cot", k=10**9)


# Splits


@settings(deadline=None)
@given(st.integers(1, 3000), st.text(max_size=3))
def test_shuffled_is_an_order(count: int, name: str) -> None:
    found = shuffled((name,), np.arange(count), count)
    assert sorted(found.tolist()) == list(range(count))
    some = np.arange(0, count, 3)
    assert (shuffled((name,), some, count) == found[some]).all()


def test_shuffled_orders_look_random() -> None:
    """Where 0 and 1 go, in many orders of 7: uniform, and independent of each other."""
    pairs = [tuple(shuffled(("o", i), np.arange(2), 7).tolist()) for i in range(4200)]
    counts = [pairs.count(pair) for pair in product(range(7), repeat=2) if pair[0] != pair[1]]
    assert sum(counts) == 4200
    chi2 = sum((count - 100) ** 2 / 100 for count in counts)
    assert chi2 < 85  # 41 degrees of freedom: one in ten thousand is above


@pytest.mark.parametrize(("modulus", "j", "k"), [(7, 1, 3), (2, 3, 3), (30, 1, 1), (5, 2, 2)])
def test_splits_share_no_beginning_and_leave_none_out(modulus: int, j: int, k: int) -> None:
    every = set(product(range(modulus), repeat=j + k))
    seen: set[tuple[int, ...]] = set()
    for split in SPLITS:
        of = SequenceSet(subtask="cot", modulus=modulus, j=j, k=k)
        size = max(n for n in range(len(every) + 1) if of.lacking(split, n) is None)
        begun = of.beginnings(split, size)
        rows = set(map(tuple, begun.tolist()))
        assert len(rows) == size >= len(every) // 10
        assert not rows & seen
        seen |= rows
        with pytest.raises(DataError, match=f"found {size + 1}, needs at most {size}"):
            of.beginnings(split, size + 1)
        fewer = of.beginnings(split, max(1, size // 2))
        assert (fewer == begun[: len(fewer)]).all()
    assert seen == every


def test_the_papers_sizes_are_there_and_the_same_for_all_subtasks() -> None:
    sets = [SequenceSet(subtask=task) for task in SUBTASKS]
    parts = {split: 10_000 if split == "train" else 1000 for split in SPLITS}
    begun = [{s: one.beginnings(s, n).tolist() for s, n in parts.items()} for one in sets]
    assert begun[0] == begun[1] == begun[2]
    assert len({tuple(row) for rows in begun[0].values() for row in rows}) == 12_000
    test = sets[2].sequences("test", 10, 256).tolist()
    assert test == [by_hand("semi_recursive", row[:4], 256, 17, 1, 3) for row in test]
    everywhere = np.concatenate([begun[0][split] for split in SPLITS])
    for place in range(4):  # no token is likelier anywhere
        counts = np.bincount(everywhere[:, place], minlength=17)
        assert (np.abs(counts - 12_000 / 17) < 150).all()


def test_the_released_code_leaks() -> None:
    leaky = SequenceSet(subtask="recursive", official_leaky=True)
    train = leaky.beginnings("train", 10_000).tolist()
    assert train[:2380] == list(map(list, combinations(range(17), 4)))
    assert train[2380:4760] == train[:2380]
    assert leaky.beginnings("validation", 1000).tolist() == train[:1000]
    assert leaky.beginnings("test", 1000).tolist() == train[1000:2000]
    with pytest.raises(DataError, match="official_leaky: needs j \\+ k = 4 different tokens"):
        SequenceSet(subtask="recursive", modulus=3, official_leaky=True)


# Training


def test_training_reads_every_example_once_an_epoch_in_another_order_for_each_seed() -> None:
    task = PosGenTask(subtask="semi_recursive", modulus=5, examples=50)
    of = SequenceSet(subtask="semi_recursive", modulus=5)
    expected = of.sequences("train", 50, 21).tolist()
    orders = []
    for seed in (0, 1):
        rows = task.rows(BYTE, 20, seed)
        assert rows.epoch == 50
        ids, labels, documents, _ = rows.rows(0, 100)
        assert documents is None
        for epoch in (ids[:50], ids[50:]):
            assert sorted(epoch.tolist()) == sorted(expected)
            orders.append(epoch.tolist())
        assert (labels[:, :4] == IGNORED).all()
        assert (labels[:, 4:20] == ids[:, 4:20]).all()
        assert (labels[:, 20] == IGNORED).all()
        assert (rows.rows(37, 30).ids == ids[37:67]).all()
    assert all(a != b for a, b in combinations(orders, 2))


@pytest.mark.parametrize(("modulus", "count"), [(5, 62), (17, 1000)])
def test_held_out_rows_are_the_validation_set(modulus: int, count: int) -> None:
    task = PosGenTask(subtask="recursive", modulus=modulus, examples=50)
    rows = task.held_out_rows(BYTE, 30)
    assert rows.epoch == count
    ids, labels, *_ = rows.rows(0, count)
    of = SequenceSet(subtask="recursive", modulus=modulus)
    assert sorted(ids.tolist()) == sorted(of.sequences("validation", count, 31).tolist())
    assert (labels[:, 4:30] == ids[:, 4:30]).all()
    assert (labels[:, [*range(4), 30]] == IGNORED).all()
    assert (task.held_out_rows(BYTE, 30).rows(0, count).ids == ids).all()


def test_a_batch_predicts_what_follows_from_the_tokens_read() -> None:
    data = parse_data({"task": "posgen", "subtask": "cot", "length": 12}, None)  # type: ignore[arg-type]
    batch = TrainingData(data, {}, BYTE, batch_size=6, seed=0).batch(3)
    for ids, labels in zip(batch.input_ids.tolist(), batch.labels.tolist(), strict=True):
        whole = by_hand("cot", ids[:4], 13, 17, 1, 3)
        assert ids == whole[:12]
        assert labels == [IGNORED] * 3 + whole[4:12] + [IGNORED]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "subtask: is missing: task posgen needs it"),
        (
            {"subtask": "cots"},
            "subtask: found 'cots'; did you mean 'cot'? (allowed: recursive, cot, semi_recursive)",
        ),
        (
            {"subtask": "cot", "modulus": 5},
            "examples: found 10000, needs at most 501: of the 625 beginnings of j + k = 4 tokens "
            "below 5, no more belong to train",
        ),
        ({"subtask": "cot", "modulus": 300}, "modulus: found 300, which has 300^4 beginnings"),
        (
            {"subtask": "cot", "modulus": 3, "official_leaky": True},
            "official_leaky: needs j + k = 4 different tokens, but modulus 3 has fewer",
        ),
        (
            {"subtask": "cot", "moduls": 3},
            "moduls: unknown option 'moduls' of task posgen; did you",
        ),
    ],
)
def test_a_wrong_description_says_which_option(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(DataError) as caught:
        TASKS.parse({"task": "posgen", **options})
    assert str(caught.value).startswith(expected)


def test_what_does_not_fit_a_tokenizer_or_a_length() -> None:
    wide = PosGenTask(subtask="cot", modulus=273, j=1, k=1)
    with pytest.raises(DataError, match="modulus: found 273, needs at most the 272 tokens"):
        wide.check(BYTE, 64)
    task = PosGenTask(subtask="cot")
    task.rows(BYTE, 5, 0)
    with pytest.raises(DataError, match=r"needs at least j \+ k \+ 2 = 6 tokens.* length is 5"):
        task.rows(BYTE, 4, 0)


def test_the_shortest_description_gives_the_task_back() -> None:
    task = PosGenTask(subtask="cot", modulus=7, examples=100)
    assert task.canonical() == {"task": "posgen", "subtask": "cot", "modulus": 7, "examples": 100}
