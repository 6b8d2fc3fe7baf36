"""Interrupted anywhere and resumed, a training gives the same bits as if it had never stopped.

test_early_stop.py has the same of a small model, at more places.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from real_training import LENGTH, SIZES, RealStage, assert_equal, prepare, pretraining

EVERYTHING: dict[str, Any] = {
    "micro_batch_tokens": 3 * LENGTH,  # of 4 rows: the second micro-batch is smaller
    "learning_rate": 0.3,  # too much: for some, the best weights are not the last ones
    "schedule": "wsd",
    "warmup": 0.7,
    "decay": 0.2,
    "final_learning_rate": 0.8,
    "validate_every": 2,
    "validation_tokens": 10 * LENGTH,
    "select": "best",
    "checkpoint_every": 5,
}
EMBEDDINGS: dict[str, Any] = {
    "rope": {"type": "rope", "base": 129.0},
    "fope": {"type": "fope", "base": 129.0, "learned": True},
    "random-rope": "random-rope",  # draws positions in each pass
    "fire": "fire",
    "learned": {"type": "learned", "num_positions": 40, "random_offset": True},
    "muon": "fox",
}
CHANGES: dict[str, Any] = {"muon": {"optimizer": "muon", "learning_rate": 0.03}}
"""The settings that are not the usual ones."""
BLOCKS: dict[str, Any] = {
    "learned": dataclasses.replace(SIZES, norm="layer", biases=True, dropout=0.2)
}
"""The models that are not of the usual sizes."""
STEPS = 7


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return prepare(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def whole(data: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, RealStage]:
    """The uninterrupted training of each embedding."""
    stages = {}
    for name, embedding in EMBEDDINGS.items():
        stage = pretraining(STEPS, embedding=embedding, **EVERYTHING | CHANGES.get(name, {}))
        stage = dataclasses.replace(stage, model=BLOCKS.get(name, SIZES))
        stages[name] = RealStage(tmp_path_factory.mktemp("whole"), stage, data)
        stages[name].attempt()
    selected = {stage.outcome()[1]["selected_step"] for stage in stages.values()}
    assert len(selected) > 1  # the last step, and one before it
    return stages


@pytest.mark.parametrize("name", EMBEDDINGS)
@settings(deadline=None, max_examples=4)
@given(stops=st.lists(st.integers(0, STEPS - 1), min_size=1, max_size=4))
def test_a_decoder_gives_the_same_bits_with_all_that_a_training_can_have(
    data: dict[str, Path], whole: dict[str, RealStage], name: str, stops: list[int]
) -> None:
    with tempfile.TemporaryDirectory() as root:
        stage = RealStage(Path(root), whole[name].stage, data)
        for stop in stops:
            torch.manual_seed(stop)  # another process has another random state
            stage.interrupted_at(stop)
        stage.attempt()
        assert_equal(stage, whole[name])
