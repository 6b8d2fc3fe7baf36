"""The store: what was finished stays, what was half-written is never read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fope_lab.store.attempt import Attempt
from fope_lab.store.attempts import Ending, LeaseHeldError
from fope_lab.store.folder import StageFolder
from fope_lab.store.records import LeaseLostError, StageDoneError, StoreError
from fope_lab.store.root import Store
from fope_lab.store.state import Status


@pytest.fixture
def folder(tmp_path: Path) -> StageFolder:
    return Store(tmp_path / "store").folder("pretrain", "abc")


def save(attempt: Attempt, step: int, text: str = "weights") -> None:
    attempt.writer.save_checkpoint(
        step, lambda path: (path / "model").write_text(f"{text} {step}") and None
    )


def die(attempt: Attempt) -> None:
    """What a kill leaves behind at worst: every row on the disk, and no word about the end."""
    attempt.writer.close()
    attempt.heartbeat.stop()


def steps(folder: StageFolder) -> list[int]:
    return [row.step for row in folder.rows()]


def test_a_finished_stage_is_done_with_its_result_rows_and_checkpoint(folder: StageFolder) -> None:
    assert not folder.is_done()
    with folder.begin("me", {"kind": "pretrain", "config": {"seed": 0}}) as attempt:
        attempt.writer.log(1, {"loss": 2.5})
        save(attempt, 1)
        attempt.writer.log(2, {"loss": 2.0})
        save(attempt, 2)
        attempt.writer.log(2, {"final": 1.0})
        assert folder.checkpoint() is not folder.final_checkpoint() is None
        attempt.finish({"loss": 2.0})
    assert folder.is_done()
    assert folder.result() == {"loss": 2.0}
    assert folder.request() == {"kind": "pretrain", "config": {"seed": 0}}
    assert [row.values for row in folder.rows()] == [{"loss": 2.5}, {"loss": 2.0}, {"final": 1.0}]
    checkpoint = folder.final_checkpoint()
    assert checkpoint == folder.checkpoint()
    assert (checkpoint.path / "model").read_text() == "weights 2"
    assert len(list((folder.path / "checkpoint").iterdir())) == 1


def test_an_attempt_that_fails_says_why_and_frees_the_stage(folder: StageFolder) -> None:
    with pytest.raises(RuntimeError), folder.begin("me", {}):
        raise RuntimeError("out of luck")
    failure = folder.attempts.newest().end
    assert failure["error"] == "out of luck"
    assert "RuntimeError" in failure["traceback"]
    assert "out of luck" in (folder.path / "log.txt").read_text()
    with folder.begin("someone else", {}) as attempt:
        assert attempt.token == 2


def test_an_attempt_that_can_not_open_its_files_fails_and_frees_the_stage(
    folder: StageFolder,
) -> None:
    folder.paths.log.mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        folder.begin("me", {})
    failure = folder.attempts.newest().end
    assert failure["type"] == "IsADirectoryError"
    folder.paths.log.rmdir()
    with folder.begin("someone else", {}) as attempt:
        assert attempt.token == 2


def test_the_first_word_about_an_end_is_believed(folder: StageFolder) -> None:
    """A run was interrupted, and its trial dies of that a moment later."""
    attempt = folder.begin("me", {})
    folder.attempts.end(attempt.token, Ending.INTERRUPTED)
    attempt.fail(RuntimeError("the machine is going down"))
    assert folder.state().status is Status.INTERRUPTED


def test_the_log_tells_of_every_attempt_and_of_one_that_died(folder: StageFolder) -> None:
    attempt = folder.begin("me", {})
    save(attempt, 3)
    die(attempt)
    with folder.begin("me", {}):
        pass
    lines = [line.split("Z ")[1] for line in folder.paths.log.read_text().splitlines()]
    assert lines == [
        "[1] started by me from step 0",
        "[2] attempt 1 ended without a word: its process must have died",
        "[2] started by me from step 3",
    ]


def test_a_finished_stage_is_not_begun_again(folder: StageFolder) -> None:
    """Nor by a driver that was told to while another was still finishing it."""
    with folder.begin("me", {}) as attempt:
        attempt.finish({})
    with pytest.raises(StageDoneError):
        folder.begin("someone else", {})
    assert folder.attempts.newest_token() == 1


def test_a_stage_finished_between_the_look_and_the_lease_is_not_begun_again(
    folder: StageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = folder.attempts.next_token("someone else")
    with folder.begin("me", {}) as attempt:
        attempt.finish({})
    monkeypatch.setattr(folder, "is_done", lambda: False)
    monkeypatch.setattr(folder.attempts, "next_token", lambda *_: looked)
    with pytest.raises(LeaseHeldError):
        folder.begin("someone else", {})
    assert folder.attempts.newest_token() == 1


def test_a_resumed_attempt_replaces_the_rows_of_the_lost_one(folder: StageFolder) -> None:
    lost = folder.begin("me", {})
    for step in (1, 2):
        lost.writer.log(step, {"loss": 10.0 + step})
    save(lost, 2)
    for step in (3, 4):
        lost.writer.log(step, {"loss": 10.0 + step})
    die(lost)

    with folder.begin("me", {}) as attempt:
        assert attempt.writer.resumed_from.step == 2
        for step in (3, 4, 5):
            attempt.writer.log(step, {"loss": 20.0 + step})
        save(attempt, 5)
        attempt.finish({})
    assert [(row.step, row.values["loss"]) for row in folder.rows()] == [
        (1, 11.0), (2, 12.0), (3, 23.0), (4, 24.0), (5, 25.0)
    ]  # fmt: skip


def test_a_superseded_attempt_can_write_nothing_that_counts(folder: StageFolder) -> None:
    zombie = folder.begin("me", {})
    zombie.writer.log(1, {"loss": 1.0})
    save(zombie, 1)
    with folder.begin("me", {}) as attempt:
        with pytest.raises(LeaseLostError, match="superseded by attempt 2"):
            save(zombie, 2)
        with pytest.raises(LeaseLostError):
            zombie.finish({"by": "zombie"})
        attempt.finish({"by": "the new one"})
    assert folder.result() == {"by": "the new one"}
    die(zombie)


def test_two_owners_cannot_work_on_a_stage_at_once(folder: StageFolder) -> None:
    with folder.begin("one", {}), pytest.raises(LeaseHeldError):
        folder.begin("two", {})


def test_changed_bytes_of_the_right_length_are_found_on_resume(folder: StageFolder) -> None:
    attempt = folder.begin("me", {})
    save(attempt, 1)
    save(attempt, 2)
    newest = folder.checkpoint()
    (newest.path / "model").write_text("weightz 2")
    die(attempt)
    with folder.begin("me", {}) as again:
        assert again.writer.resumed_from.step == 1
    assert "is damaged and is not used" in folder.paths.log.read_text()


def test_leftovers_of_a_killed_write_are_removed(folder: StageFolder) -> None:
    attempt = folder.begin("me", {})

    def dies(path: Path) -> None:
        (path / "model").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attempt.writer.save_checkpoint(1, dies)
    assert folder.checkpoint() is None
    die(attempt)
    with folder.begin("me", {}):
        assert list((folder.path / "checkpoint").iterdir()) == []


def test_progress_of_an_older_attempt_is_not_shown(folder: StageFolder) -> None:
    first = folder.begin("me", {})
    first.writer.progress(10, 10, loss=1.0)
    progress = folder.progress()
    assert (progress["step"], progress["loss"]) == (10, 1.0)
    die(first)
    with folder.begin("me", {}):
        assert folder.progress() is None


def test_a_store_that_cannot_be_written_or_is_a_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file is not a folder\. .*--store"):
        Store.open(tmp_path / "file")
    with pytest.raises(StoreError, match=r"can't be written: .*--store"):
        Store.create(tmp_path / "file" / "store")


def test_a_store_without_exclusive_creation_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system whose hard links replace what is there (none is at hand, so it is played)."""
    monkeypatch.setattr("os.link", shutil.copy)
    with pytest.raises(StoreError, match="can't create a file exclusively"):
        Store.create(tmp_path)


def test_opening_a_store_writes_nothing(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    folder = store.folder("pretrain", "key")
    assert not folder.is_done()
    assert folder.checkpoint() is None
    assert folder.rows() == []
    assert folder.request() is folder.progress() is None
    assert list(store.execution_records()) == []
    assert list(tmp_path.iterdir()) == []
    assert Store.create(tmp_path / "store") == store
    assert list((tmp_path / "store").iterdir()) == []


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_sequence_of_crashes_leaves_each_step_once(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """However often an attempt dies, the finished stage has rows 1 … n once each, in order, and a
    row is never read before a checkpoint covers it."""
    folder = Store(tmp_path_factory.mktemp("store")).folder("pretrain", "key")
    total = data.draw(st.integers(1, 12), label="steps")
    every = data.draw(st.integers(1, 5), label="checkpoint every")
    while not folder.is_done():
        dies_at = data.draw(st.one_of(st.none(), st.integers(1, total)), label="dies at")
        attempt = folder.begin("me", {})
        step = attempt.writer.resumed_from.step if attempt.writer.resumed_from else 0
        while step < total:
            step += 1
            attempt.writer.log(step, {"loss": float(step)})
            if step == dies_at:
                break
            if step % every == 0 or step == total:
                save(attempt, step)
        else:
            attempt.finish({})
        die(attempt)
        checkpoint = folder.checkpoint()
        durable = checkpoint.step if checkpoint else 0
        assert steps(folder) == list(range(1, durable + 1))
    assert steps(folder) == list(range(1, total + 1))
