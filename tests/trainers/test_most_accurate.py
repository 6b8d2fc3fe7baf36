"""Trainings that leave their most accurate model: which it is, and that it outlives every death."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_training import VOCABULARY, TinyStage, batch, train_settings
from torch import Tensor

from fope_lab.data.mixture import Batch
from fope_lab.data.rows import IGNORED

ACCURACY = "validation_token_accuracy"
STEPS = 60


def next_tokens(step: int) -> Batch:
    """Batch number `step`, in which most labels are a function of the tokens."""
    one = batch(step)
    counted = one.labels != IGNORED
    followed = (torch.arange(one.labels.numel()).view_as(one.labels) + step) % 3 > 0
    right = torch.where(followed, (one.input_ids + 1) % VOCABULARY, one.labels)
    return Batch(one.input_ids, torch.where(counted, right, IGNORED))


HELD_OUT = tuple(next_tokens(1000 + step) for step in range(4))


def stage(root: Path, select: str = "most-accurate", **changes: Any) -> TinyStage:
    fields = {"learning_rate": 0.3, "validate_every": 3, "checkpoint_every": 5, "log_every": 1}
    settings = train_settings(STEPS, **(fields | {"select": select} | changes))
    return TinyStage(root, settings, held_out=HELD_OUT)


def share_of_right_tokens(weights: dict[str, Tensor]) -> float:
    """Over all labels of HELD_OUT that count, one at a time."""
    verdicts = []
    for one in HELD_OUT:
        for token, wanted in zip(one.input_ids.flatten(), one.labels.flatten(), strict=True):
            if wanted != IGNORED:
                scores = weights["embedding"][token] @ weights["weight"] + weights["bias"]
                verdicts.append(int(scores.argmax()) == int(wanted))
    return sum(verdicts) / len(verdicts)


def test_the_first_of_the_most_accurate_models_is_left(tmp_path: Path) -> None:
    one = stage(tmp_path)
    result = one.attempt(next_tokens)
    accuracies, losses = one.logged(ACCURACY), one.logged("validation_loss")
    assert sorted(accuracies) == sorted(losses) == list(range(3, STEPS + 1, 3))
    best = max(accuracies.values())
    step = min(step for step, accuracy in accuracies.items() if accuracy == best)
    assert step not in (STEPS, min(losses, key=lambda step: losses[step]))  # else it shows nothing
    assert result["selected_step"] == step
    assert (result[ACCURACY], result["validation_loss"]) == (best, losses[step])
    assert result["optimistic"] is True
    assert share_of_right_tokens(one.final_weights()) == pytest.approx(best)
    assert result["least_validation_loss"] == min(losses.values())


def test_of_equal_accuracies_the_first_is_chosen(tmp_path: Path) -> None:
    one = stage(tmp_path, learning_rate=1e-30)
    assert one.attempt(next_tokens)["selected_step"] == 3
    assert len(set(one.logged(ACCURACY).values())) == 1


@pytest.mark.parametrize("select", ["last", "best"])
def test_other_selections_measure_no_accuracy(tmp_path: Path, select: str) -> None:
    one, accurate = stage(tmp_path / "one", select), stage(tmp_path / "accurate")
    assert ACCURACY not in one.attempt(next_tokens)
    assert not one.logged(ACCURACY)
    accurate.attempt(next_tokens)
    assert one.logged("loss") == accurate.logged("loss")  # the training is the same


def test_both_accuracies_can_be_measured(tmp_path: Path) -> None:
    one = stage(tmp_path, stop_at_accuracy=1.0)
    result = one.attempt(next_tokens)
    rows = one.logged("validation_accuracy")
    assert rows.keys() == one.logged(ACCURACY).keys()
    assert result["validation_accuracy"] == rows[result["selected_step"]]
    assert all(rows[step] <= accuracy for step, accuracy in one.logged(ACCURACY).items())
