"""Passkey prompts: exact lengths, keys where they should be, and nothing that gives them away."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fope_lab.data.problems import DataError
from fope_lab.data.seeding import random_words
from fope_lab.data.tasks.passkey import build_trial, prompt_form
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer, as_tokenizer

BYTE = ByteTokenizer()
MakeBpe = Callable[..., Any]

FILLER = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
ENGLISH = re.compile(
    r"There is an important info hidden inside a lot of irrelevant text\. Find it and memorize "
    r"them\. I will quiz you about the important information there\.\n"
    r"(?P<before>.*)\nThe pass key is (?P<key>\d{5})\. Remember it\. (?P=key) is the pass key\.\n"
    r"(?P<after>.*)\nWhat is the pass key\? The pass key is(?P<answer> (?P=key))"
)
SYMBOLIC = re.compile(
    r"(?P<before>[a-h]*)#(?P<key>[1-9]\d{4})(?P<after>[a-h]*)#(?P<answer>(?P=key))"
)


def cyclic(filler: str) -> bool:
    return all(ord(b) - ord(a) in (1, -7) for a, b in pairwise(filler))


DEPTHS = st.none() | st.floats(0, 1)
TEXT = np.array([ord("A") + i % 26 for i in range(3000)])
"""Capital letters in turn: what of it is in a prompt can be told from the prompt."""


@settings(max_examples=80)
@given(st.integers(330, 1500), st.integers(0, 10**6), DEPTHS, st.booleans())
def test_an_english_prompt_is_yarns_of_exact_length(
    length: int, trial: int, depth: float | None, real: bool
) -> None:
    text = TEXT if real else None
    prompt = prompt_form("english", BYTE, text=text).trial(length, trial, depth)
    assert prompt.input_ids.shape == (length,)
    assert prompt.input_ids.dtype == np.int64
    found = ENGLISH.fullmatch(BYTE.decode(prompt.input_ids.tolist()))
    assert found
    assert 10_000 <= int(found["key"]) <= 99_999
    assert BYTE.decode(prompt.answer_ids.tolist()) == found["answer"]
    if real:
        letters = [ord(letter) for letter in found["before"] + found["after"]]
        assert all((b - a) % 26 == 1 for a, b in pairwise(letters))
    else:
        endless = " ".join([FILLER] * 30)
        assert endless.startswith(found["before"])
        assert endless.startswith(found["after"])
    before, room = len(found["before"]), len(found["before"]) + len(found["after"])
    assert prompt.depth == before / room
    assert depth is None or abs(before - depth * room) <= 0.5


@given(st.integers(12, 700), st.integers(0, 10**6), DEPTHS)
def test_a_symbolic_prompt_is_a_key_in_a_cycle_of_exact_length(
    length: int, trial: int, depth: float | None
) -> None:
    prompt = prompt_form("symbolic", BYTE).trial(length, trial, depth)
    text = BYTE.decode(prompt.input_ids.tolist())
    assert len(text) == length
    found = SYMBOLIC.fullmatch(text)
    assert found
    assert BYTE.decode(prompt.answer_ids.tolist()) == found["key"]
    assert cyclic(found["before"])
    assert cyclic(found["after"])
    before, room = len(found["before"]), length - 12
    assert prompt.depth == (before / room if room else 0)
    assert depth is None or abs(before - depth * room) <= 0.5


@pytest.mark.parametrize("form", ["english", "symbolic"])
def test_trials_are_the_same_for_every_model_and_differ_from_each_other(form: str) -> None:
    one = [build_trial(BYTE, 400, i, form=form) for i in range(30)]
    again = prompt_form(form, ByteTokenizer())
    assert all((again.trial(400, i).input_ids == t.input_ids).all() for i, t in enumerate(one))
    assert len({tuple(trial.input_ids) for trial in one}) == 30
    assert len({tuple(trial.answer_ids) for trial in one}) > 25
    assert not np.array_equal(one[0].answer_ids, build_trial(BYTE, 401, 0, form=form).answer_ids)


@pytest.mark.parametrize("form", ["english", "symbolic"])
def test_depths_are_uniform_and_digits_too(form: str) -> None:
    prompts = prompt_form(form, BYTE)
    trials = [prompts.trial(2000, i) for i in range(1500)]
    assert stats.kstest([trial.depth for trial in trials], "uniform").pvalue > 0.001
    keys = np.array([[int(d) for d in BYTE.decode(t.answer_ids.tolist()).strip()] for t in trials])
    # Of numbers without a repeated digit, one in nine has its 0 at a given later place.
    later = {"english": np.full(10, 0.1), "symbolic": np.array([1 / 9] + [8 / 81] * 9)}[form]
    for place in range(5):
        counts = np.bincount(keys[:, place], minlength=10)
        share = later if place else np.array([0] + [1 / 9] * 9)
        expected = len(keys) * share
        assert stats.chisquare(counts[share > 0], expected[share > 0]).pvalue > 0.001
    depths = np.array([trial.depth for trial in trials])
    for place in range(5):
        assert stats.spearmanr(depths, keys[:, place]).pvalue > 0.001


def test_no_digit_stands_twice_in_a_symbolic_key() -> None:
    form = prompt_form("symbolic", BYTE, digits=9)
    for trial in range(200):
        key = BYTE.decode(form.trial(64, trial).answer_ids.tolist())
        assert len(set(key)) == 9
        assert key[0] != "0"


def test_the_symbolic_fillers_phase_says_nothing_of_the_place() -> None:
    prompts = prompt_form("symbolic", BYTE)
    first = [chr(prompts.trial(200, i).input_ids[0]) for i in range(2000)]
    letters = [first.count(letter) for letter in "abcdefgh"]
    assert stats.chisquare(letters).pvalue > 0.001


@pytest.mark.parametrize("merges", [20, 80])
def test_other_tokenizers_give_exact_lengths_too(make_bpe: MakeBpe, merges: int) -> None:
    bpe = make_bpe(merges)
    lengths = set()
    for trial in range(40):
        prompt = build_trial(bpe, 512, trial)
        assert prompt.input_ids.shape == (512,)
        key = bpe.decode(prompt.answer_ids.tolist()).strip()
        assert re.fullmatch(r"[1-9]\d{4}", key)
        text = bpe.decode(prompt.input_ids.tolist())
        assert text.count(key) == 3
        assert text.endswith(f"The pass key is {key}")
        lengths.add(len(prompt.answer_ids))
        symbolic = build_trial(bpe, 100, trial, form="symbolic")
        assert SYMBOLIC.fullmatch(bpe.decode(symbolic.input_ids.tolist()))
    if merges == 80:
        assert len(lengths) > 1  # digits merge in some keys and not in others


def test_what_a_model_expects_before_every_text_is_there(make_bpe: MakeBpe) -> None:
    bpe = make_bpe(bos=True)
    prompt = build_trial(bpe, 300, 0)
    assert prompt.input_ids[0] == 1
    assert len(prompt.input_ids) == 300


def test_a_length_that_is_too_short_is_told_with_the_shortest() -> None:
    with pytest.raises(DataError, match=r"needs at least (\d+) tokens.*length is 100") as caught:
        build_trial(BYTE, 100, 0)
    shortest = int(re.search(r"at least (\d+)", str(caught.value))[1])  # type: ignore[index]
    assert len(build_trial(BYTE, shortest, 0).input_ids) == shortest
    with pytest.raises(DataError, match=f"length is {shortest - 1}"):
        build_trial(BYTE, shortest - 1, 0)
    with pytest.raises(DataError, match="needs at least 12 tokens, but length is 11"):
        build_trial(BYTE, 11, 0, form="symbolic")


def test_an_unknown_form_is_told() -> None:
    with pytest.raises(DataError, match=r"'symbol'; did you mean 'symbolic'\?"):
        build_trial(BYTE, 100, 0, form="symbol")


def test_a_tokenizer_without_the_characters_is_told() -> None:
    class Words(ByteTokenizer):
        def encode(self, text: str) -> list[int]:
            return [1, 2] if text == "7" else super().encode(text)

    with pytest.raises(DataError, match="needs '7' to be one token"):
        build_trial(Words(), 100, 0, form="symbolic")


@settings(max_examples=60)
@given(
    st.integers(13, 120),
    st.integers(0, 5),
    st.integers(0, 10**9),
    st.integers(1, 20),
    st.one_of(st.none(), st.integers(1, 30)),
)
def test_training_rows_ask_for_the_key_and_have_a_loss_on_the_answers(
    length: int, seed: int, first: int, count: int, queries: int | None
) -> None:
    form = prompt_form("symbolic", BYTE)
    ids, answers = form.training_rows(length, seed, first, count, queries)
    assert ids.shape == answers.shape == (count, length)
    most = min(queries or length, length // 6 - 1)
    for index, row in enumerate(ids):
        text = BYTE.decode(row.tolist())
        found = re.fullmatch(r"([a-h]*)#([1-9]\d{4})((?:[a-h]*#\2)+)", text)
        assert found
        asked = [m.start() for m in re.finditer("#", text)][1:]
        assert 1 <= len(asked) <= most
        expected = np.zeros(length, bool)
        for start in asked:
            expected[start + 1 : start + 6] = True
        assert answers[index].tolist() == expected.tolist()
        alone, _ = form.training_rows(length, seed, first + index, 1, queries)
        assert alone[0].tolist() == row.tolist()


def test_training_rows_ask_as_a_trial_does_once_or_more_often() -> None:
    form = prompt_form("symbolic", BYTE)
    ids, _ = form.training_rows(64, 0, 0, 3000, None)
    texts = [BYTE.decode(row.tolist()) for row in ids]
    asked = np.array([text.count("#") - 1 for text in texts])
    assert stats.chisquare(np.bincount(asked, minlength=10)[1:]).pvalue > 0.001  # 1 … 9 times
    single = [t for t, n in zip(texts, asked, strict=True) if n == 1]
    assert all(SYMBOLIC.fullmatch(text) for text in single)
    depths = [(text.index("#") + 0.5) / 53 for text in single]
    assert stats.kstest(depths, "uniform").pvalue > 0.001


def test_english_training_rows_are_prompts(make_bpe: MakeBpe) -> None:
    for tokenizer in (BYTE, as_tokenizer(make_bpe(80))):
        form = prompt_form("english", tokenizer)
        ids, answers = form.training_rows(400, 0, 5, 6, None)
        alone, _ = form.training_rows(400, 0, 7, 1, None)
        assert alone[0].tolist() == ids[2].tolist()
        for row, mask in zip(ids, answers, strict=True):
            text = tokenizer.decode(row.tolist())
            found = ENGLISH.fullmatch(text)
            assert found
            assert tokenizer.decode(row[mask].tolist()) == found["answer"]
            assert mask[-1]


def test_trials_share_no_random_numbers_with_training() -> None:
    trials = {tuple(random_words(("passkey trial", 64, i), 0, 1, 4)[0]) for i in range(200)}
    rows = random_words(("passkey training", 64, 0), 0, 200, 4)
    assert not trials & {tuple(row) for row in rows}
