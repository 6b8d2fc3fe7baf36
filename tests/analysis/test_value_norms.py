"""Norms of values against the projections themselves, and against transformers."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable

import numpy as np
import pytest
import torch

from benchmarks.parity import random_model, saved
from fope_lab.analysis import Subject
from fope_lab.analysis.frequency_usage import mean_norms
from fope_lab.data.problems import DataError
from fope_lab.drawing.svg import standalone_svg
from fope_lab.model import Decoder, ModelConfig, load_model
from fope_lab.papers.p_rope.value_norms import ValueNorms, mean_value_norms, unevenness

SMALL = ValueNorms(sequences=3, length=20)
TEXT = "Some sixty letters are all that is read here, no more & no less."


def ignore(done: int, total: int) -> None:
    pass


def model_of(embedding: str = "rope") -> Decoder:
    config = ModelConfig(num_layers=3, num_heads=4, num_kv_heads=2, head_dim=16, vocab_size=272)
    return Decoder(config, embedding, train_length=64).eval()


@pytest.mark.parametrize("family", ["gqa", "gemma"])
def test_norms_are_those_of_transformers_values(family: str) -> None:
    theirs = random_model(family)
    with saved(theirs) as folder:
        ours = load_model(folder)
    rows = torch.randint(0, 320, (2, 30), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        cache = theirs(rows, use_cache=True).past_key_values
    found = mean_value_norms(ours, rows.numpy())["value"]
    for layer in range(ours.config.num_layers):
        values = cache.layers[layer].values.double()
        half = values.shape[-1] // 2
        expected = (values[..., :half] ** 2 + values[..., half:] ** 2).sqrt().mean(dim=(0, 1, 2))
        np.testing.assert_allclose(found[layer], expected.numpy(), rtol=1e-4)


def test_keys_are_those_of_frequency_usage_and_no_hook_is_left() -> None:
    model = model_of()
    rows = np.random.default_rng(0).integers(0, 272, (2, 11))
    found = mean_value_norms(model, rows)["key"]
    np.testing.assert_allclose(found, mean_norms(model, rows)["key"].mean(axis=1), rtol=1e-6)
    assert not any(layer.self_attn.v_proj._forward_hooks for layer in model.layers)


def test_a_pair_of_values_without_a_weight_has_no_norm(reading: Callable[..., Subject]) -> None:
    model = model_of()
    for layer in model.layers:
        weight = layer.self_attn.v_proj.weight.data
        weight.unflatten(0, (2, 2, 8))[:, :, 5:] = 0.0  # heads, halves, pairs
    arrays = SMALL.compute(reading(model, TEXT), ignore)
    assert (arrays["value"][:, 5:] == 0).all()
    assert (arrays["value"][:, :5] > 0).all()
    numbers = SMALL.numbers(arrays)
    assert numbers["value_slow_share"] == 0
    assert numbers["value_unevenness"] > numbers["key_unevenness"]


def test_unevenness() -> None:
    found = unevenness(np.array([[2.0, 2, 2, 2], [0, 0, 0, 0], [0, 4, 0, 4]]))
    assert found.tolist() == [0, 0, 1]


def test_its_figure_names_values_and_keys(reading: Callable[..., Subject]) -> None:
    arrays = SMALL.compute(reading(model_of(), TEXT), ignore)
    svg = standalone_svg(SMALL.draw(arrays), SMALL.name, SMALL.says)
    text = " ".join(ET.fromstring(svg).itertext())
    assert "by layer, values" in text
    assert "by layer, keys" in text
    with pytest.raises(DataError, match="rotates"):
        SMALL.compute(reading(model_of("nope"), TEXT), ignore)
