"""Interrupted anywhere and resumed, a training gives the same bits as if it had never stopped."""

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
from tiny_training import TinyStage, train_settings

STEPS = 14
DROPOUT = 0.3  # so that the random state matters


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    stage = TinyStage(tmp_path_factory.mktemp("whole"), train_settings(STEPS), DROPOUT)
    stage.attempt()
    return stage.outcome()


@settings(deadline=None, max_examples=15)
@given(
    stops=st.lists(st.integers(0, STEPS - 1), min_size=1, max_size=4),
    checkpoint_every=st.integers(1, STEPS + 1),
)
def test_the_same_bits_whenever_interrupted(
    uninterrupted: tuple[Any, ...], stops: list[int], checkpoint_every: int
) -> None:
    with tempfile.TemporaryDirectory() as root:
        chosen = train_settings(STEPS, checkpoint_every=checkpoint_every)
        stage = TinyStage(Path(root), chosen, DROPOUT)
        for stop in stops:
            stage.interrupted_at(stop)
        torch.manual_seed(5)  # another process has another random state
        stage.attempt()
        assert stage.outcome() == uninterrupted


def test_the_dropout_matters(uninterrupted: tuple[Any, ...], tmp_path: Path) -> None:
    """Otherwise the test above would not see whether the random state is restored."""
    stage = TinyStage(tmp_path, train_settings(STEPS))
    stage.attempt()
    assert stage.outcome()[0] != uninterrupted[0]


def test_a_stage_that_died_before_DONE_repeats_no_step(  # noqa: N802
    uninterrupted: tuple[Any, ...], tmp_path: Path
) -> None:
    stage = TinyStage(tmp_path, train_settings(STEPS), DROPOUT)
    stage.attempt(finish=False)

    def no_batch(step: int) -> None:
        raise AssertionError(f"step {step} was repeated")

    stage.attempt(no_batch)
    assert stage.outcome() == uninterrupted


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
}
BLOCKS: dict[str, Any] = {
    "learned": dataclasses.replace(SIZES, norm="layer", biases=True, dropout=0.2)
}
"""The models that are not of the usual sizes."""
REAL_STEPS = 7


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return prepare(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def whole(data: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, RealStage]:
    """The uninterrupted training of each embedding."""
    stages = {}
    for name, embedding in EMBEDDINGS.items():
        stage = pretraining(REAL_STEPS, embedding=embedding, **EVERYTHING)
        stage = dataclasses.replace(stage, model=BLOCKS.get(name, SIZES))
        stages[name] = RealStage(tmp_path_factory.mktemp("whole"), stage, data)
        stages[name].attempt()
    selected = {stage.outcome()[1]["selected_step"] for stage in stages.values()}
    assert len(selected) > 1  # the last step, and one before it
    return stages


@pytest.mark.parametrize("name", EMBEDDINGS)
@settings(deadline=None, max_examples=4)
@given(stops=st.lists(st.integers(0, REAL_STEPS - 1), min_size=1, max_size=4))
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
