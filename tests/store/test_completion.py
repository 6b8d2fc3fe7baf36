"""Result and DONE belong to one attempt, whatever stalls between them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fope_lab.store import attempt as attempt_module
from fope_lab.store.attempt import Attempt
from fope_lab.store.folder import StageFolder
from fope_lab.store.records import LeaseLostError, StageDoneError
from fope_lab.store.state import Status


@pytest.fixture
def folder(tmp_path: Path) -> StageFolder:
    return StageFolder(tmp_path / "pretrain" / "key")


@pytest.fixture
def first(folder: StageFolder) -> Iterator[Attempt]:
    """An attempt that stalls; it has saved a checkpoint."""
    attempt = folder.begin("first", {})
    save(attempt, 1)
    yield attempt
    attempt.heartbeat.stop()


def save(attempt: Attempt, step: int) -> None:
    attempt.writer.log(step, {"loss": 1.0 / step})
    attempt.writer.save_checkpoint(step, lambda path: (path / "model").touch())


def stall(monkeypatch: pytest.MonkeyPatch, name: str, during: Callable[[], None]) -> None:
    """Have `during` happen before the next call of a function of the module `attempt`."""
    whole = getattr(attempt_module, name)

    def late(*arguments: Any) -> Any:
        monkeypatch.setattr(attempt_module, name, whole)
        during()
        return whole(*arguments)

    monkeypatch.setattr(attempt_module, name, late)


def take_over(folder: StageFolder, *, saves: int = 0) -> None:
    """Finish the stage as another driver, which has watched the first attempt go stale."""
    with folder.begin("second", {}, supersede=1) as attempt:
        for step in range(2, 2 + saves):
            save(attempt, step)
        attempt.finish({"by": "second"})


@pytest.mark.parametrize("name", ["write_atomic", "digests_of", "create_exclusive"])
def test_an_attempt_that_stalls_before_done_loses(
    folder: StageFolder, first: Attempt, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stall(monkeypatch, name, lambda: take_over(folder))
    with pytest.raises(LeaseLostError, match="finished by another attempt"):
        first.finish({"by": "first"})
    assert folder.state().status is Status.DONE
    assert folder.result() == {"by": "second"}
    assert sorted(path.name for path in folder.path.glob("*result*")) == ["result.json"]


def test_an_attempt_that_stalls_after_done_has_finished_the_stage(
    folder: StageFolder, first: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def meanwhile() -> None:
        seen.append((folder.state().status, folder.result()))
        with pytest.raises(StageDoneError):
            take_over(folder)

    whole = os.replace

    def late(source: Path, target: Path) -> None:
        if target == folder.paths.result:
            meanwhile()
        whole(source, target)

    monkeypatch.setattr(attempt_module.os, "replace", late)
    first.finish({"by": "first"})
    assert seen == [(Status.DONE, {"by": "first"})]
    assert folder.result() == {"by": "first"}
    assert folder.paths.results() == [folder.paths.result]


def test_a_late_done_whose_checkpoint_is_gone_is_replaced(
    folder: StageFolder, first: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt stalls before DONE, and creates it while the second is at work."""

    def meanwhile() -> None:
        with folder.begin("second", {}, supersede=1) as attempt:
            save(attempt, 2)
            save(attempt, 3)
            stall(monkeypatch, "write_atomic", lambda: first_finishes(attempt))
            attempt.finish({"by": "second"})

    def first_finishes(_: Attempt) -> None:
        whole(folder.paths.done, done[0])

    whole, done = attempt_module.create_exclusive, []

    def late(path: Path, content: str) -> bool:
        monkeypatch.setattr(attempt_module, "create_exclusive", whole)
        done.append(content)
        meanwhile()
        return whole(path, content)

    monkeypatch.setattr(attempt_module, "create_exclusive", late)
    with pytest.raises(LeaseLostError):
        first.finish({"by": "first"})
    assert folder.state().status is Status.DONE
    assert folder.result() == {"by": "second"}
    assert [row.step for row in folder.rows()] == [1, 2, 3]


def write_model(path: Path) -> None:
    (path / "model").write_text("the weights")


def finish_without_end(folder: StageFolder, owner: str) -> None:
    """Finish a stage by an attempt that is killed before it can record its end."""
    with folder.begin(owner, {}) as attempt:
        attempt.writer.save_checkpoint(1, write_model)
        attempt.finish({})
    (folder.path / "attempts" / "0001.end").unlink()


def test_the_output_of_an_attempt_that_was_killed_after_done_can_be_moved(tmp_path: Path) -> None:
    folder = StageFolder(tmp_path / "pretrain" / "key")
    finish_without_end(folder, "a driver that is gone")
    assert folder.is_done()
    assert folder.set_aside("me", "damaged") is not None
    with folder.begin("me", {}) as attempt:
        attempt.finish({})
    assert folder.is_done()


def test_only_the_output_that_was_found_damaged_is_moved(tmp_path: Path) -> None:
    """Of two children that found it, the second may come when the parent is done again."""
    folder = StageFolder(tmp_path / "pretrain" / "key")
    finish_without_end(folder, "me")
    token = folder.finished_by()
    assert folder.set_aside("me", "damaged", finished_by=token) is not None
    assert folder.set_aside("me", "damaged", finished_by=token) is None
    attempt = folder.begin("me", {})
    assert folder.set_aside("me", "damaged", finished_by=token) is None
    attempt.finish({})
    assert folder.set_aside("me", "damaged", finished_by=token) is None
    assert folder.is_done()
