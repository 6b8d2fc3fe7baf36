"""Needles: one in each prompt, at the depth asked, and the same prompt but for its place."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fope_lab.data.problems import DataError
from fope_lab.data.tasks.haystack import held_out_text
from fope_lab.data.tasks.passkey import build_trial, needle_depths, prompt_form
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer

BYTE = ByteTokenizer()
TEXT = np.array([ord("A") + i % 26 for i in range(3000)])
"""Capital letters in turn: what of it is in a prompt can be told from the prompt."""


@pytest.mark.parametrize("form", ["english", "symbolic"])
def test_depths_move_the_needle_and_nothing_else(form: str) -> None:
    prompts = prompt_form(form, BYTE)
    [start, middle, end] = [
        [prompts.trial(400, trial, depth) for trial in range(5)] for depth in needle_depths(3)
    ]
    for cells in zip(start, middle, end, strict=True):
        assert [round(trial.depth, 2) for trial in cells] == [0.0, 0.5, 1.0]
        assert len({tuple(trial.answer_ids) for trial in cells}) == 1
    assert len({tuple(trial.answer_ids) for trial in start}) == 5
    drawn = build_trial(BYTE, 400, 3, form=form)  # the passkey's, at a depth of its own
    assert drawn.answer_ids.tolist() == start[3].answer_ids.tolist()
    assert prompt_form(form, BYTE).trial(400, 3, drawn.depth).input_ids.tolist() == (
        drawn.input_ids.tolist()
    )


def test_a_trials_stretch_of_text_is_the_same_at_all_depths_and_not_the_next_ones() -> None:
    prompts = prompt_form("english", BYTE, text=TEXT)
    around = []
    for trial in range(8):
        texts = [BYTE.decode(prompts.trial(500, trial, d).input_ids.tolist()) for d in (0, 0.3, 1)]
        found = {re.sub("[^A-Z]|T(?=he)|W(?=hat)|R(?=em)", "", text) for text in texts}
        assert len(found) == 1
        around.append(found.pop())
    assert len(set(around)) > 4


@given(st.lists(st.integers(0, 50), min_size=1, max_size=5), st.integers(0, 100))
def test_held_out_text_is_read_on_over_its_statements(sizes: list[int], trial: int) -> None:
    tokens = np.arange(300)
    parts = held_out_text(tokens)(sizes, ("x", trial))
    assert [len(part) for part in parts] == sizes
    read = [token for part in parts for token in part]
    assert read == list(range(read[0], read[0] + len(read))) if read else sizes == [0] * len(sizes)


def test_every_place_of_the_text_is_drawn() -> None:
    haystack = held_out_text(np.arange(40))
    starts = {haystack([10, 20], ("x", trial))[0][0] for trial in range(300)}
    assert starts == set(range(11))


def test_text_that_is_too_short_is_told() -> None:
    with pytest.raises(DataError, match=r"needs \d+ tokens of text, but only 100"):
        prompt_form("english", BYTE, text=TEXT[:100]).trial(500, 0, 0.5)
    with pytest.raises(DataError, match="its own filler"):
        prompt_form("symbolic", BYTE, text=TEXT)
    with pytest.raises(DataError, match=r"found depth 1\.5"):
        prompt_form("english", BYTE).trial(500, 0, 1.5)


def test_depths_are_equally_spaced() -> None:
    assert needle_depths(1) == (0.5,)
    assert needle_depths(2) == (0.0, 1.0)
    assert needle_depths(5) == (0.0, 0.25, 0.5, 0.75, 1.0)
