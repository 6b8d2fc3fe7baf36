"""The state of a stage, as the store alone tells it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fope_lab.store.attempt import Attempt
from fope_lab.store.folder import StageFolder
from fope_lab.store.root import Store


@pytest.fixture
def folder(tmp_path: Path) -> StageFolder:
    return Store(tmp_path / "store").folder("pretrain", "abc")


def save(attempt: Attempt, step: int) -> None:
    attempt.writer.save_checkpoint(step, lambda path: (path / "model").write_text("x") and None)


def told(folder: StageFolder) -> tuple[str, str]:
    state = folder.state()
    return state.status, state.reason


def test_a_stage_that_nobody_began(folder: StageFolder) -> None:
    assert told(folder) == ("not started", "not in the store")
    assert folder.state().checkpoint is folder.state().attempt is None


def test_a_stage_from_its_first_attempt_to_its_end(folder: StageFolder) -> None:
    with folder.begin("driver-1", {}) as attempt:
        assert told(folder) == ("running", "started by driver-1, still marked as running")
        assert folder.state().checkpoint is None
        save(attempt, 3)
    assert told(folder) == ("interrupted", "no progress was recorded")
    with folder.begin("driver-2", {}) as attempt:
        attempt.writer.progress(4, 4)
    assert told(folder) == ("interrupted", "stopped at step 4 of 4")
    with pytest.raises(ValueError, match="out of luck"), folder.begin("driver-3", {}):
        raise ValueError("out of luck\nand more")
    assert told(folder) == ("failed", "out of luck")
    state = folder.state()
    assert state.checkpoint.step == 3
    assert (state.attempt.owner, state.attempt.ending) == ("driver-3", "failed")
    with folder.begin("driver-4", {}) as attempt:
        save(attempt, 5)
        attempt.finish({})
    assert told(folder) == ("done", "")
    assert folder.state().is_done
    assert folder.state().checkpoint == folder.checkpoint()
