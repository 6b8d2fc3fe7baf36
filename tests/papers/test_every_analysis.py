"""Every analysis: its description comes back, its numbers are declared, its figure can be shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from analysed import figure_text, random_model

from fope_lab.analysis import Subject, analysis_names, parse_analysis

TEXT = "It isn't known, nor 'tis likely to be; what's done is done, & that's it. No more."
SHORT = {"sequences": 2, "length": 16}
SMALL: dict[str, tuple[dict[str, Any], str]] = {
    "attention-head": ({"layer": 1, "head": 3, "length": 8}, "Queries, layer 1, head 3"),
    "base-bound": ({"lengths": (64, 256), "step": 0.1, "most": 1e5}, "context length, tokens"),
    "cauchy-schwarz": (SHORT, "most on the previous token"),
    "constructions": ({"head_dim": 16, "length": 64}, "slowest pair, base 500,000"),
    "decay": ({"length": 64, "pairs": 20, "head_dim": 16}, "mean of 20 pairs"),
    "feature-gap": ({"embeddings": ("rope", "yarn"), "length": 96, "head_dim": 16}, "Slower pairs"),
    "frequency-usage": ({**SHORT, "layer": 1}, "Mean norm in layer 1, keys"),
    "gaussian-contribution": (
        {"embedding": "fope", "length": 128, "pairs": 20},
        "expected: μ² of constant",
    ),
    "harmonics": ({"activation": "relu"}, "After relu"),
    "low-pass": ({"embedding": "rope-a", "length": 128}, "share of power"),
    "marked-head": (SHORT, "Queries, layer"),
    "positional-heads": (SHORT, "Mean attention to the token 2 back"),
    "qk-magnitude": (SHORT, "mean absolute value"),
    "random-decay": ({"length": 256, "head_dim": 16}, "drawn from 1024"),
    "rotation-angles": ({"pair": 3, "length": 100}, "new positions"),
    "semantic-heads": (SHORT, "To marked tokens − uniform attention"),
    "spectrum": ({}, "Spectrum of constant scores"),
    "spectrum-damage": ({"seed": 2}, "ground truth"),
    "truncated-wave": ({"head_dim": 16, "length": 64}, "pair 0, noise by Eq. 10"),
    "value-norms": (SHORT, "by layer, values"),
}
"""Options of each analysis, and words of its figure."""
MODELS = ({"type": "rope", "base": 129}, 3), ({"type": "fope", "base": 129}, 9)
LEFT_OUT = {
    ("spectrum", "rope"): "energy_off_own_frequency",  # RoPE has no series
    ("qk-magnitude", "fope"): "undertrained_",  # and FoPE no undertrained pairs
}
CASES = [
    (name, *model)
    for name in SMALL
    for model in (MODELS if parse_analysis(name).needs != "nothing" else [(None, 0)])
]


def test_all_are_here() -> None:
    assert set(SMALL) == set(analysis_names())


@pytest.mark.parametrize("name", SMALL)
def test_a_description_comes_back(name: str) -> None:
    options, _ = SMALL[name]
    analysis = parse_analysis({"type": name, **options})
    given = {k: list(v) if isinstance(v, tuple) else v for k, v in options.items()}
    assert analysis.canonical() == {"type": name, **given}
    assert parse_analysis(analysis.canonical()) == analysis
    assert parse_analysis(name).canonical() == {"type": name}
    assert "arXiv" in analysis.source
    assert analysis.says


@pytest.mark.parametrize("name", SMALL)
def test_its_numbers_have_names_that_a_claim_can_use(name: str) -> None:
    names = parse_analysis(name).number_words
    assert names
    assert all(part.replace("_", "a").isalnum() and part[0].isalpha() for part in names)


@pytest.mark.parametrize(("name", "embedding", "layers"), CASES)
def test_figures_and_numbers(
    name: str, embedding: Any, layers: int, reading: Callable[..., Subject]
) -> None:
    options, words = SMALL[name]
    analysis = parse_analysis({"type": name, **options})
    model = embedding and random_model(embedding, num_layers=layers)
    done: list[tuple[int, int]] = []
    arrays = analysis.compute(model and reading(model, TEXT), lambda *count: done.append(count))
    numbers = analysis.numbers(arrays)
    assert all(np.isfinite(value) for value in numbers.values())
    missing = LEFT_OUT.get((name, embedding["type"]) if embedding else (), "nothing")
    assert set(numbers) == {key for key in analysis.number_words if not key.startswith(missing)}
    if layers != MODELS[0][1] or any(name == odd for odd, _ in LEFT_OUT):
        text = figure_text(analysis, arrays)  # of the other model it is the same
        assert words in text
        assert "mathdefault" not in text
    assert sorted(done) == done
    assert all(part <= whole for part, whole in done)
