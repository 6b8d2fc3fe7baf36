"""Norms of values against the projections themselves, and against transformers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from analysed import ignore, random_model

from benchmarks.parity import random_model as random_theirs
from benchmarks.parity import saved
from fope_lab.analysis import Subject
from fope_lab.analysis.frequency_usage import mean_norms
from fope_lab.model import load_model
from fope_lab.papers.p_rope.value_norms import ValueNorms, mean_value_norms, unevenness

SMALL = ValueNorms(sequences=3, length=20)
TEXT = "Some sixty letters are all that is read here, no more & no less."


@pytest.mark.parametrize("family", ["gqa", "gemma"])
def test_norms_are_those_of_transformers_values(family: str) -> None:
    theirs = random_theirs(family)
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


def test_keys_are_those_of_frequency_usage() -> None:
    model = random_model(noise=0, num_layers=3, num_kv_heads=2)
    rows = np.random.default_rng(0).integers(0, 272, (2, 11))
    found = mean_value_norms(model, rows)["key"]
    np.testing.assert_allclose(found, mean_norms(model, rows)["key"].mean(axis=1), rtol=1e-6)


def test_a_pair_of_values_without_a_weight_has_no_norm(reading: Callable[..., Subject]) -> None:
    model = random_model(noise=0, num_layers=3, num_kv_heads=2)
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
