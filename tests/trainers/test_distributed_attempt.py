"""What workers write of an attempt whose lease another process holds."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from fope_lab.store import Attempt, LeaseLostError, StageFolder, Store
from trainers.worker_attempt import Loan


def write(directory: Path) -> None:
    (directory / "weights").write_text("1 2 3")


def work(attempt: Attempt) -> None:
    """What a training does with its attempt."""
    with attempt:
        attempt.note("begun")
        attempt.log(1, {"loss": 2.0})
        attempt.progress(1, 2, loss=2.0)
        attempt.save_checkpoint(1, write)
        attempt.log(2, {"loss": 1.0})
        attempt.save_checkpoint(2, write)


@pytest.fixture
def folder(tmp_path: Path) -> StageFolder:
    return Store(tmp_path / "store").folder("pretrain", "key")


def test_the_first_worker_writes_as_the_holder_would_and_the_others_nothing(
    folder: StageFolder,
) -> None:
    with folder.begin("driver", {}) as attempt:
        loan = pickle.loads(pickle.dumps(Loan.of(attempt)))
        silent = loan.open(1)
        work(silent)
        assert folder.checkpoint() is None
        assert not (folder.path / "log.txt").exists()
        assert not (folder.path / "metrics").exists()
        assert not (folder.path / "progress.json").exists()
        first = loan.open(0)
        work(first)
        assert first.newest == silent.save_checkpoint(2, write) == folder.checkpoint()
        assert attempt.folder.attempts.newest().end is None  # type: ignore[union-attr]
        attempt.saved_by_worker(first.newest)
        attempt.finish({"loss": 1.0})
    assert folder.is_done()
    assert [row.values["loss"] for row in folder.rows()] == [2.0, 1.0]
    assert folder.progress() is not None
    assert "[1] begun" in (folder.path / "log.txt").read_text()


def test_a_worker_of_a_lost_attempt_can_no_longer_save(folder: StageFolder) -> None:
    with folder.begin("driver", {}) as attempt:
        late = Loan.of(attempt).open(0)
        late.log(1, {"loss": 5.0})
        late.save_checkpoint(1, write)
        late.log(2, {"loss": 5.0})
        late.__exit__(None, None, None)
    with folder.begin("driver", {}) as again:
        assert again.resumed_from is not None
        loan = Loan.of(again)
        assert loan.resumed_from == again.resumed_from
        with pytest.raises(LeaseLostError):
            late.save_checkpoint(2, write)
        worker = loan.open(0)
        with worker:
            worker.log(2, {"loss": 1.0})
            worker.save_checkpoint(2, write)
    assert [row.values["loss"] for row in folder.rows()] == [5.0, 1.0]
