"""Models whose heads are made by hand, and texts for them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch

from fope_lab.analysis import Subject
from fope_lab.analysis.base import ANALYSIS_TYPES
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer
from fope_lab.model import Decoder, ModelConfig

HEAD_DIM, WIDTH = 16, 32
APOSTROPHE = ord("'")

Columns = Mapping[tuple[int, int], tuple[torch.Tensor, torch.Tensor, int]]
"""By layer and head: the query of every token, the key of the tokens that have a feature, and which
one this is: 0, which all have, or 1, which apostrophes have."""


@pytest.fixture(autouse=True)
def _every_number_has_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every number that a test computes is declared, and has words for people."""

    def checked(numbers: Callable[..., dict[str, float]]) -> Callable[..., dict[str, float]]:
        @functools.wraps(numbers)
        def compute(*arguments: Any) -> dict[str, float]:
            found = numbers(*arguments)
            assert set(found) <= set(arguments[0].number_names)
            words = arguments[0].number_words
            assert [name for name in found if words.declared(name) is None] == []
            assert len({words.of(name) for name in found}) == len(found)
            return found

        return compute

    kinds = ANALYSIS_TYPES.all()
    for kind in kinds.values():
        if "numbers" in vars(kind):
            monkeypatch.setattr(kind, "numbers", checked(kind.numbers))


@pytest.fixture
def made_by_hand() -> Callable[..., Decoder]:
    """A decoder of bytes: three layers of four heads that attend as told, and otherwise evenly.

    A state's dimension 0 is the same for all tokens, and dimension 1 is there for apostrophes only;
    layers add nothing to it.
    """

    def make(heads: Columns, embedding: Any = "rope", **sizes: Any) -> Decoder:
        config = ModelConfig(
            num_layers=3, num_heads=4, head_dim=HEAD_DIM, hidden_size=WIDTH, vocab_size=272, **sizes
        )
        model = Decoder(config, embedding, train_length=64).eval()
        for parameter in model.layers.parameters():
            if parameter.dim() == 2:
                parameter.data.zero_()
        tokens = torch.zeros(272, WIDTH)
        tokens[:, 0] = 1.0
        tokens[APOSTROPHE, 1] = 1.0
        tokens[:, 2:] = 1e-3 * torch.randn(272, WIDTH - 2, generator=torch.manual_seed(0))
        model.embed_tokens.weight.data = tokens
        for (layer, head), (query, key, feature) in heads.items():
            attention = model.layers[layer].self_attn
            rows = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
            attention.q_proj.weight.data[rows, 0] = query
            attention.k_proj.weight.data[rows, feature] = key
        return model

    return make


@pytest.fixture
def reading() -> Callable[..., Subject]:
    """A model and the bytes of a text."""

    def read(model: Decoder, text: str) -> Subject:
        tokenizer = ByteTokenizer()
        return Subject(model, tokenizer, np.array(tokenizer.encode(text), np.int64))

    return read
