"""The analyses of frequencies: descriptions that come back, figures that can be shown."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest

from fope_lab.analysis import Subject, parse_analysis
from fope_lab.data.tokenizers.tokenizer import ByteTokenizer
from fope_lab.drawing.svg import standalone_svg
from fope_lab.model import Decoder, ModelConfig

SMALL: dict[str, dict[str, Any]] = {
    "feature-gap": {"embeddings": ["rope", "yarn"], "length": 96, "head_dim": 16},
    "rotation-angles": {"pair": 3, "length": 100},
    "harmonics": {"activation": "relu", "length": 512},
    "spectrum-damage": {"draws": 5, "seed": 2},
    "gaussian-contribution": {"embedding": "fope", "length": 128, "pairs": 20},
    "low-pass": {"embedding": "rope-a", "length": 128},
    "spectrum": {"reach": 4},
    "qk-magnitude": {"sequences": 2, "length": 10},
}


@pytest.mark.parametrize("name", SMALL)
def test_a_description_comes_back(name: str) -> None:
    analysis = parse_analysis({"type": name, **SMALL[name]})
    assert analysis.canonical() == {"type": name, **SMALL[name]}
    assert parse_analysis(analysis.canonical()) == analysis
    assert parse_analysis(name).canonical() == {"type": name}
    assert "arXiv" in analysis.source
    assert analysis.says


def subject(embedding: Any, layers: int) -> Subject:
    config = ModelConfig(num_layers=layers, num_heads=2, head_dim=16, vocab_size=40)
    model = Decoder(config, embedding, train_length=64).eval()
    return Subject(model, ByteTokenizer(), np.arange(20) % 40)


MODELS = [({"type": "rope", "base": 129}, 2), ({"type": "fope", "base": 129}, 9)]


@pytest.mark.parametrize(
    ("name", "model"),
    [
        (name, model)
        for name in SMALL
        for model in (MODELS if parse_analysis(name).needs != "nothing" else [None])
    ],
)
def test_figures_and_numbers(name: str, model: tuple[Any, int] | None) -> None:
    analysis = parse_analysis({"type": name, **SMALL[name]})
    looked_at = None if model is None else subject(*model)
    done: list[tuple[int, int]] = []
    arrays = analysis.compute(looked_at, lambda *count: done.append(count))
    numbers = analysis.numbers(arrays)
    assert all(np.isfinite(value) and key[0].isalpha() for key, value in numbers.items())
    # RoPE has no series, and FoPE no undertrained pairs.
    left_out = {
        ("spectrum", "rope"): {"energy_off_own_frequency"},
        ("qk-magnitude", "fope"): set(analysis.number_names),
    }
    embedding = "" if model is None else model[0]["type"]
    assert set(numbers) == set(analysis.number_names) - left_out.get((name, embedding), set())
    assert len(set(analysis.number_names)) == len(analysis.number_names)
    svg = standalone_svg(analysis.draw(arrays), name, analysis.says)
    words = [element.text for element in ET.fromstring(svg).iter() if element.text]
    assert not any("mathdefault" in word for word in words)
    assert sorted(done) == done
    assert all(part <= whole for part, whole in done)
