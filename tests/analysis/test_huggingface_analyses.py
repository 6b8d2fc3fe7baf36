"""Attention of Llama and Gemma beside transformers' own, and every analysis that reads a text."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from benchmarks.parity import random_model, saved
from fope_lab.analysis import Subject, parse_analysis
from fope_lab.analysis.reading import attention_patterns
from fope_lab.model import Decoder, load_model

TEXT = "It isn't known, nor 'tis likely to be; what's done is done, & that's it. No more."


@pytest.fixture(scope="module", params=["gqa", "llama3", "gemma"])
def both(request: pytest.FixtureRequest) -> tuple[PreTrainedModel, Decoder]:
    theirs = random_model(request.param)
    with saved(theirs) as folder:
        return theirs, load_model(folder)


def test_weights_are_transformers(both: tuple[PreTrainedModel, Decoder]) -> None:
    theirs, ours = both
    theirs.set_attn_implementation("eager")
    tokens = torch.randint(0, 320, (2, 50), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = theirs(tokens, output_attentions=True).attentions
    found = list(attention_patterns(ours, tokens))
    assert len(found) == len(expected) == 3
    for (_, weights), layer in zip(found, expected, strict=True):
        torch.testing.assert_close(weights, layer, rtol=0, atol=1e-5)
        assert weights[:, :, -1].std() > 1e-3


@pytest.mark.parametrize(
    "name",
    [
        "frequency-usage",
        "value-norms",
        "positional-heads",
        "cauchy-schwarz",
        "semantic-heads",
        "marked-head",
    ],
)
def test_every_analysis_reads_them(
    name: str, both: tuple[PreTrainedModel, Decoder], reading: Callable[..., Subject]
) -> None:
    analysis = parse_analysis({"type": name, "sequences": 2, "length": 40})
    done: list[tuple[int, int]] = []
    arrays = analysis.compute(reading(both[1], TEXT), lambda now, total: done.append((now, total)))
    assert done[-1][0] == done[-1][1]
    numbers = analysis.numbers(arrays)
    assert all(np.isfinite(value) for value in numbers.values())
    assert set(numbers) == set(analysis.number_words)
