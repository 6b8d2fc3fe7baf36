"""What the tests of analyses share: models, among them one whose heads are made by hand, and texts.

The conftests of the folders that use them import the fixtures.
"""

from __future__ import annotations

import functools
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch

from fope_lab.analysis import Analysis, Arrays, Subject, parse_analysis
from fope_lab.analysis.base import ANALYSIS_TYPES
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer
from fope_lab.drawing.svg import standalone_svg
from fope_lab.model import Decoder, ModelConfig

HEAD_DIM, WIDTH = 16, 32
APOSTROPHE = ord("'")

Columns = Mapping[tuple[int, int], tuple[torch.Tensor, torch.Tensor, int]]
"""By layer and head: the query of every token, the key of the tokens that have a feature, and which
one this is: 0, which all have, or 1, which apostrophes have."""


def ignore(done: int, total: int) -> None:
    """Take the progress of an analysis."""


def computed(
    name: str, subject: Subject | None = None, **options: Any
) -> tuple[dict[str, Any], dict[str, float]]:
    """The arrays and the numbers of an analysis."""
    analysis = parse_analysis({"type": name, **options})
    arrays = dict(analysis.compute(subject, ignore))
    return arrays, analysis.numbers(arrays)


def figure_text(analysis: Analysis, arrays: Arrays) -> str:
    """All words of an analysis's figure."""
    svg = standalone_svg(analysis.draw(arrays), analysis.name, analysis.says)
    return " ".join(ET.fromstring(svg).itertext())


def random_model(
    embedding: Any = "rope", noise: float = 0.2, train_length: int = 64, **sizes: Any
) -> Decoder:
    """A decoder of bytes whose weights are larger than at the start, so that attention differs."""
    sizes = {"num_layers": 2, "num_heads": 4, "head_dim": HEAD_DIM, "vocab_size": 272, **sizes}
    model = Decoder(ModelConfig(**sizes), embedding, train_length=train_length).eval()
    generator = torch.Generator().manual_seed(3)
    for weight in model.parameters():
        weight.data += torch.randn(weight.shape, generator=generator) * noise
    return model


@pytest.fixture(autouse=True)
def every_number_has_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every number that a test computes has words for people, which are declared beforehand."""

    def checked(numbers: Callable[..., dict[str, float]]) -> Callable[..., dict[str, float]]:
        @functools.wraps(numbers)
        def compute(*arguments: Any) -> dict[str, float]:
            found, words = numbers(*arguments), arguments[0].number_words
            assert set(found) <= set(words)
            assert len({words[name] for name in found}) == len(found)
            return found

        return compute

    for kind in ANALYSIS_TYPES.all().values():
        if "numbers" in vars(kind):
            monkeypatch.setattr(kind, "numbers", checked(kind.numbers))


@pytest.fixture
def made_by_hand() -> Callable[..., Decoder]:
    """A decoder of bytes: three layers of four heads that attend as told, and otherwise evenly.

    A state's dimension 0 is the same for all tokens, and dimension 1 is there for apostrophes only;
    layers add nothing to it.
    """

    def make(heads: Columns, embedding: Any = "rope", **sizes: Any) -> Decoder:
        model = random_model(embedding, 0, num_layers=3, hidden_size=WIDTH, **sizes)
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
