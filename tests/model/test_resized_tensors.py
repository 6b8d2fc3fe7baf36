"""FoPE's coefficients where another floor leaves another number of frequencies.

The expected values follow the released code of FoPE (`olmo/checkpoint.py`): the old matrix is the
corner of the new one, whose rest is as in a new model, or 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from fope_lab.model import Decoder, ModelConfig, load_model, save_model

CONFIG = ModelConfig(num_layers=2, num_heads=2, head_dim=64, vocab_size=90)
OFFICIAL = {"type": "fope-official", "sigma": 0.3}
LONGER = {**OFFICIAL, "original_length": 1024}
BEFORE, AFTER = (2, 16, 16), (2, 18, 16)  # heads, D, pairs


def coefficients(model: Decoder) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(each.cos_coef, each.sin_coef) for each in model.position_embeddings]


@pytest.fixture
def parent(tmp_path: Path) -> Decoder:
    model = Decoder(CONFIG, OFFICIAL, train_length=512, seed=3)
    save_model(tmp_path, model, context_length=512, tokenizer="byte")
    return model


@pytest.mark.parametrize("resizing", ["expand", "pad"])
@pytest.mark.parametrize(
    "embedding", [LONGER, {**OFFICIAL, "type": "fope-yarn", "factor": 16, "original_length": 1024}]
)
def test_the_old_coefficients_are_the_corner_of_the_new_ones(
    tmp_path: Path, parent: Decoder, resizing: Literal["expand", "pad"], embedding: dict[str, Any]
) -> None:
    if embedding["type"] == "fope-yarn":
        embedding = embedding | dict.fromkeys(("below_floor", "output_pairs", "noise"), "official")
    model = load_model(tmp_path, embedding, seed=7, resizing=resizing)
    fresh = Decoder(CONFIG, embedding, train_length=512, seed=7)
    for layer in zip(*map(coefficients, (model, parent, fresh)), strict=True):
        for new, old, drawn in zip(*layer, strict=True):
            assert (new.shape, old.shape) == (AFTER, BEFORE)
            assert torch.equal(new[:, :16], old)
            rest = {"expand": drawn[:, 16:], "pad": torch.zeros(2, 2, 16)}
            assert torch.equal(new[:, 16:], rest[resizing])


def test_an_expanded_series_has_the_identity_of_every_second_frequency_in_its_rest(
    tmp_path: Path, parent: Decoder
) -> None:
    """In steps of ⌈18/16⌉ = 2, row 16 is the identity of pair 8."""
    silent = {**LONGER, "sigma": 0.0}
    model = Decoder(CONFIG, {**OFFICIAL, "sigma": 0.0}, train_length=512)
    save_model(tmp_path, model, context_length=512, tokenizer="byte")
    expected = torch.zeros(2, 18, 16)
    expected[:, torch.arange(16), torch.arange(16)] = 1.0
    expected[:, 16, 8] = 1.0
    for layer in coefficients(load_model(tmp_path, silent, resizing="expand")):
        for found in layer:
            assert torch.equal(found, expected)


def test_coefficients_of_the_same_size_stay_whatever_the_resizing(
    tmp_path: Path, parent: Decoder
) -> None:
    yarn = {**OFFICIAL, "type": "fope-yarn", "factor": 16}
    yarn |= dict.fromkeys(("below_floor", "output_pairs", "noise"), "official")
    for resizing in ("draw", "expand", "pad"):
        model = load_model(tmp_path, yarn, seed=7, resizing=resizing)
        for found, old in zip(coefficients(model), coefficients(parent), strict=True):
            assert all(map(torch.equal, found, old))


def test_without_a_resizing_all_are_drawn(tmp_path: Path, parent: Decoder) -> None:
    fresh = Decoder(CONFIG, LONGER, train_length=512, seed=7)
    for found, drawn in zip(
        coefficients(load_model(tmp_path, LONGER, seed=7)), coefficients(fresh), strict=True
    ):
        assert all(map(torch.equal, found, drawn))


def test_fewer_frequencies_leave_the_corner(tmp_path: Path) -> None:
    model = Decoder(CONFIG, LONGER, train_length=512, seed=3)
    save_model(tmp_path, model, context_length=1024, tokenizer="byte")
    for found, old in zip(
        coefficients(load_model(tmp_path, OFFICIAL, resizing="expand")),
        coefficients(model),
        strict=True,
    ):
        assert all(torch.equal(new, before[:, :16]) for new, before in zip(found, old, strict=True))
