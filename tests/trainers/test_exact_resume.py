"""Interrupted anywhere and resumed, a training gives the same bits as if it had never stopped."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_training import TinyStage, train_settings
from torch import Tensor

STEPS = 14
DROPOUT = 0.3  # so that the random state matters
Outcome = tuple[list[tuple[int, float, float]], float, dict[str, Tensor]]


def outcome(stage: TinyStage) -> Outcome:
    """All rows without their timings, the final loss, and the weights."""
    rows = [
        (row.step, row.values["loss"], row.values["learning_rate"]) for row in stage.folder.rows()
    ]
    result = stage.folder.result()
    assert result is not None
    return rows, result["loss"], stage.final_weights()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    stage = TinyStage(tmp_path_factory.mktemp("whole"), train_settings(STEPS), DROPOUT)
    stage.attempt()
    return outcome(stage)


@settings(deadline=None, max_examples=25)
@given(
    stops=st.lists(st.integers(0, STEPS - 1), min_size=1, max_size=4),
    checkpoint_every=st.integers(1, STEPS + 1),
)
def test_the_same_bits_whenever_interrupted(
    uninterrupted: Outcome, stops: list[int], checkpoint_every: int
) -> None:
    with tempfile.TemporaryDirectory() as root:
        chosen = train_settings(STEPS, checkpoint_every=checkpoint_every)
        stage = TinyStage(Path(root), chosen, DROPOUT)
        for stop in stops:
            stage.interrupted_at(stop)
        torch.manual_seed(5)  # another process has another random state
        stage.attempt()
        rows, loss, weights = outcome(stage)
    assert rows == uninterrupted[0]
    assert loss == uninterrupted[1]
    for name, tensor in uninterrupted[2].items():
        assert torch.equal(weights[name], tensor)


def test_the_dropout_matters(uninterrupted: Outcome, tmp_path: Path) -> None:
    """Otherwise the test above would not see whether the random state is restored."""
    stage = TinyStage(tmp_path, train_settings(STEPS))
    stage.attempt()
    assert outcome(stage)[0] != uninterrupted[0]


def test_a_stage_that_died_before_DONE_repeats_no_step(  # noqa: N802
    uninterrupted: Outcome, tmp_path: Path
) -> None:
    stage = TinyStage(tmp_path, train_settings(STEPS), DROPOUT)
    stage.attempt(finish=False)

    def no_batch(step: int) -> None:
        raise AssertionError(f"step {step} was repeated")

    stage.attempt(no_batch)
    assert outcome(stage)[:2] == uninterrupted[:2]
