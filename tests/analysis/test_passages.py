"""Rows of a text, with what a tokenizer puts before each."""

from __future__ import annotations

import numpy as np
import pytest

from fope_lab.analysis import Subject
from fope_lab.analysis.passages import passages, words
from fope_lab.data.problems import DataError
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer
from fope_lab.model import Decoder, ModelConfig

MODEL = Decoder(
    ModelConfig(num_layers=1, num_heads=1, head_dim=8, vocab_size=272), "nope", train_length=8
)


class Prefixed(ByteTokenizer):
    """Bytes of which every text begins with two tokens, as some pretrained models want."""

    prefix_ids = (258, 257)


def test_rows_are_the_text_in_its_order() -> None:
    rows = passages(Subject(MODEL, ByteTokenizer(), np.arange(12)), 3, 4)
    assert rows.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_every_row_begins_as_the_model_is_used_to() -> None:
    rows = passages(Subject(MODEL, Prefixed(), np.arange(12)), 3, 4)
    assert rows.tolist() == [[258, 257, 0, 1], [258, 257, 4, 5], [258, 257, 8, 9]]


def test_errors() -> None:
    with pytest.raises(DataError, match="length: found 2, needs more than the 2 tokens"):
        passages(Subject(MODEL, Prefixed(), np.arange(12)), 3, 2)
    with pytest.raises(DataError, match="token 300, but the model's vocabulary has 272 tokens"):
        passages(Subject(MODEL, ByteTokenizer(), np.full(12, 300)), 3, 4)


def test_words_can_be_drawn() -> None:
    tokenizer = ByteTokenizer()
    ids = np.array([*tokenizer.encode("a b\n\0"), tokenizer.eos_id])
    assert words(Subject(MODEL, tokenizer, ids), ids) == ["a", "␣", "b", "⏎", "·", ""]
