"""Full disks, damaged checkpoints and too little memory: nothing half-done counts as done."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from real_training import LENGTH, ROWS, RealStage, assert_equal, prepare, pretraining

from fope_lab.data.mixture import TrainingData
from fope_lab.model.decoder import Decoder
from fope_lab.store.records import StagePaths, StoreError
from trainers.stage import TrainingMemoryError, memory_advice

STEPS = 9
SETTINGS: dict[str, Any] = {
    "validate_every": 3,
    "validation_tokens": 8 * LENGTH,
    "select": "best",
    "learning_rate": 1e-30,  # so that of all weights the first validated, equal, are the best
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return prepare(tmp_path_factory.mktemp("data"))


def make(root: Path, data: dict[str, Path]) -> RealStage:
    return RealStage(root, pretraining(STEPS, **SETTINGS), data)


@pytest.fixture(scope="module")
def whole(data: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> RealStage:
    stage = make(tmp_path_factory.mktemp("whole"), data)
    stage.attempt()
    return stage


def resumed_step(stage: RealStage) -> int:
    record = stage.folder.attempts.newest()
    return int(record.details["resumed_from"]["step"])


@pytest.mark.parametrize(
    "name",
    ["model.safetensors", "best.safetensors", "training.pt", "training.json", "manifest.json"],
)
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_cut_file_leads_back_to_the_checkpoint_before(
    data: dict[str, Path], whole: RealStage, tmp_path: Path, name: str, share: float
) -> None:
    stage = make(tmp_path, data)
    stage.interrupted_at(7)
    newest = stage.folder.checkpoint()
    assert newest.step == 6
    file = newest.path / name
    os.truncate(file, int(file.stat().st_size * share))
    stage.attempt()
    assert resumed_step(stage) == 4
    assert_equal(stage, whole)


def test_a_final_checkpoint_that_is_cut_is_not_called_done(
    data: dict[str, Path], whole: RealStage, tmp_path: Path
) -> None:
    stage = make(tmp_path, data)
    with stage.folder.begin("test", {}) as attempt:
        result = stage.train(attempt.writer)
        final = stage.folder.checkpoint()
        os.truncate(final.path / "model.safetensors", 100)
        with pytest.raises(StoreError, match=r"can't be finished.*000000009, but.*000000008"):
            attempt.finish(result)
    assert not stage.folder.is_done()
    stage.attempt()
    assert resumed_step(stage) == 8
    assert_equal(stage, whole)


@contextlib.contextmanager
def small_files() -> Iterator[None]:
    """A limit on the size of files, which a model's exceeds."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_costs_no_more_than_the_steps_since_the_last_checkpoint(
    data: dict[str, Path], whole: RealStage, tmp_path: Path
) -> None:
    """Training meets it after step 5, and goes on once there is room."""
    stage, original = make(tmp_path, data), TrainingData.batch
    with contextlib.ExitStack() as stack:

        def filling(data: TrainingData, step: int) -> Any:
            if step == 5 and data.sources[1:]:
                stack.enter_context(small_files())
            return original(data, step)

        stack.enter_context(patch.object(TrainingData, "batch", filling))
        with pytest.raises(StoreError) as raised:
            stage.attempt()
        assert "no space left" in str(raised.value)
        assert "for the checkpoint of step 6" in str(raised.value)
        assert "of step 4" in str(raised.value)
        assert not stage.folder.is_done()
        assert not list((stage.folder.path / "checkpoint").glob(".*"))  # it makes room
    failure = stage.folder.attempts.newest().end
    assert failure["error"] == str(raised.value)
    stage.attempt()
    assert resumed_step(stage) == 4
    assert_equal(stage, whole)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_metrics_that_can_not_be_written_stop_the_stage(
    data: dict[str, Path], whole: RealStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = make(tmp_path, data)
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    real = StagePaths.segment

    def segment(paths: StagePaths, token: int, step: int) -> Path:
        return full if step == 2 else real(paths, token, step)

    monkeypatch.setattr(StagePaths, "segment", segment)
    with pytest.raises(StoreError, match=r"no space left .* for the checkpoint of step 3"):
        stage.attempt()
    monkeypatch.undo()
    assert not stage.folder.is_done()
    failure = stage.folder.attempts.newest().end
    assert failure is not None  # the lease is free
    stage.attempt()
    assert resumed_step(stage) == 2
    assert_equal(stage, whole)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried 2.00 GiB."), "Tried 2.00 GiB."),
        (MemoryError(), "MemoryError"),
        (None, "can't allocate memory"),  # as torch says it on a CPU
    ],
)
def test_out_of_memory_says_what_to_lower(
    data: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception | None,
    said: str,
) -> None:
    def full(*args: Any, **options: Any) -> Any:
        if error is None:
            return torch.empty(2**50, dtype=torch.float64)
        raise error

    monkeypatch.setattr(Decoder, "forward", full)
    stage = RealStage(tmp_path, pretraining(3), data)
    with pytest.raises(TrainingMemoryError) as raised:
        stage.attempt()
    message = str(raised.value)
    failure = stage.folder.attempts.newest().end
    assert failure["error"] == message
    for text in (
        f"train.micro_batch_tokens (now {ROWS * LENGTH}",
        "gradient_checkpointing: true (now false)",
        "precision: bfloat16 (now float32)",
        f"data.length (now {LENGTH})",
        said,
    ):
        assert text in message


def test_only_what_is_left_to_lower_is_said() -> None:
    settings = {"gradient_checkpointing": True, "precision": "bfloat16"}
    stage = pretraining(3, micro_batch_tokens=LENGTH, **settings)
    with pytest.raises(TrainingMemoryError) as raised, memory_advice(stage):
        raise MemoryError
    message = str(raised.value)
    assert "micro_batch_tokens" not in message
    assert "gradient_checkpointing" not in message
    assert "precision" not in message
    assert f"lower data.length (now {LENGTH})" in message


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match=r"^shapes differ$"), memory_advice(pretraining(3)):
        raise RuntimeError("shapes differ")
