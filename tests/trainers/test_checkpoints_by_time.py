"""A checkpoint is written every few minutes, whatever the steps, and changes no result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_training import TinyStage, batch, train_settings

from fope_lab.data.mixture import Batch
from fope_lab.store.checkpoint import Checkpoint
from fope_lab.store.writer import FolderWriter
from trainers import loop

STEPS = 24


@dataclass
class Clock:
    """The loop's clock: a step takes a minute, and writing a checkpoint some seconds."""

    saving_seconds: float = 0.0
    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def batches(self, step: int) -> Batch:
        self.now += 60.0
        return batch(step)


def saved_steps(
    root: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock, **settings: Any
) -> list[int]:
    """The steps at which a training of STEPS minutes saves checkpoints."""
    saved, save = [], FolderWriter.save_checkpoint

    def noted(writer: FolderWriter, step: int, write: Any) -> Checkpoint:
        saved.append(step)
        clock.now += clock.saving_seconds
        return save(writer, step, write)

    with monkeypatch.context() as patch:
        patch.setattr(FolderWriter, "save_checkpoint", noted)
        patch.setattr(loop, "time", SimpleNamespace(monotonic=clock.monotonic))
        stage = TinyStage(root, train_settings(STEPS, **settings), dropout=0.3)
        stage.attempt(clock.batches)
    return saved


@pytest.mark.parametrize(
    ("settings", "saving_seconds", "steps"),
    [
        ({"checkpoint_every": 100}, 0, [5, 10, 15, 20, 24]),
        ({"checkpoint_every": 8}, 0, [5, 8, 13, 16, 21, 24]),  # by steps; the time starts anew
        ({"checkpoint_every": 100, "checkpoint_minutes": 10}, 0, [10, 20, 24]),
        # Half a minute of writing is a twentieth of ten minutes.
        ({"checkpoint_every": 100}, 30, [5, 15, 24]),
    ],
)
def test_steps_of_a_minute_are_saved_every_five_or_rarer_if_writing_is_slow(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    saving_seconds: float,
    steps: list[int],
) -> None:
    assert saved_steps(tmp_path, monkeypatch, Clock(saving_seconds), **settings) == steps


def test_it_changes_no_bit_and_old_checkpoints_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = [
        TinyStage(tmp_path / str(minutes), train_settings(STEPS), dropout=0.3)
        for minutes in (1, 1000)
    ]
    for stage, minutes in zip(stages, (1, 1000), strict=True):
        saved = saved_steps(
            stage.root, monkeypatch, Clock(), checkpoint_every=1000, checkpoint_minutes=minutes
        )
        assert len(saved) == (STEPS if minutes == 1 else 1)
        assert len(list(stage.folder.paths.checkpoints.iterdir())) == 1
    assert stages[0].outcome() == stages[1].outcome()
