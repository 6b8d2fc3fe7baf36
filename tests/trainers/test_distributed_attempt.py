"""What workers write for an attempt whose lease another process holds."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from fope_lab.store.folder import StageFolder
from fope_lab.store.records import LeaseLostError, StoreError
from fope_lab.store.root import Store
from fope_lab.store.writer import FolderWriter, RunWriter


def write(directory: Path) -> None:
    (directory / "weights").write_text("1 2 3")


def work(writer: RunWriter) -> None:
    """What a training does with its writer."""
    writer.note("begun")
    writer.log(1, {"loss": 2.0})
    writer.progress(1, 2, loss=2.0)
    writer.save_checkpoint(1, write)
    writer.log(2, {"loss": 1.0})
    writer.save_checkpoint(2, write)
    writer.close()


@pytest.fixture
def folder(tmp_path: Path) -> StageFolder:
    return Store(tmp_path / "store").folder("pretrain", "key")


def test_the_first_worker_writes_as_the_holder_would_and_the_others_nothing(
    folder: StageFolder,
) -> None:
    with folder.begin("driver", {}) as attempt:
        handle = pickle.loads(pickle.dumps(attempt.writer.handle))
        silent = RunWriter(handle)
        work(silent)
        assert folder.checkpoint() is None
        assert "begun" not in (folder.path / "log.txt").read_text()
        assert not (folder.path / "metrics").exists()
        assert not (folder.path / "progress.json").exists()
        first = FolderWriter(handle)
        work(first)
        assert first.newest == silent.newest == folder.checkpoint()
        assert folder.attempts.newest().end is None  # type: ignore[union-attr]
        attempt.writer.newest = first.newest
        attempt.finish({"loss": 1.0})
    assert folder.is_done()
    assert [row.values["loss"] for row in folder.rows()] == [2.0, 1.0]
    assert folder.progress() is not None
    assert "[1] begun" in (folder.path / "log.txt").read_text()


def test_a_result_is_refused_if_its_checkpoint_is_not_the_newest(folder: StageFolder) -> None:
    with folder.begin("driver", {}) as attempt:
        work(FolderWriter(attempt.writer.handle))
        with pytest.raises(StoreError, match="its result belongs to None, but the newest complete"):
            attempt.finish({"loss": 1.0})
    assert not folder.is_done()


def test_a_worker_of_a_lost_attempt_can_no_longer_save(folder: StageFolder) -> None:
    with folder.begin("driver", {}) as attempt:
        late = FolderWriter(attempt.writer.handle)
        late.log(1, {"loss": 5.0})
        late.save_checkpoint(1, write)
        late.log(2, {"loss": 5.0})
        late.close()
    with folder.begin("driver", {}) as again:
        assert again.writer.handle.resumed_from == again.writer.resumed_from is not None
        with pytest.raises(LeaseLostError):
            late.save_checkpoint(2, write)
        worker = FolderWriter(again.writer.handle)
        worker.log(2, {"loss": 1.0})
        worker.save_checkpoint(2, write)
        worker.close()
    assert [row.values["loss"] for row in folder.rows()] == [5.0, 1.0]
