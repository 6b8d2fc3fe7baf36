"""A snapshot of a store shows each stage as it was when it was first asked for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fope_lab.store import root as folders
from fope_lab.store.folder import StageFolder
from fope_lab.store.root import Store, StoreSnapshot
from fope_lab.store.state import Status

KIND, KEY = "pretrain", "0123456789abcdef"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "store")


def everything(folder: StageFolder) -> tuple[object, ...]:
    """What readers ask of a folder."""
    reads = (folder.state, folder.result, folder.rows, folder.makers, folder.time_taken)
    return (*(read() for read in reads), folder.started_at(), folder.finished_at())


def fail(folder: StageFolder) -> None:
    with pytest.raises(ValueError, match="no data"), folder.begin("test", {}):
        raise ValueError("no data")


def finish(folder: StageFolder) -> None:
    with folder.begin("test", {}, made_by={"commit": "abc"}) as attempt:
        attempt.writer.log(1, {"loss": 2.0})
        attempt.finish({"loss": 2.0})


def test_a_snapshot_shows_what_the_store_shows_and_keeps_it(store: Store) -> None:
    live = store.folder(KIND, KEY)
    before = StoreSnapshot.of(store)
    nothing = everything(before.folder(KIND, KEY))
    assert nothing == everything(live)
    fail(live)
    between = StoreSnapshot.of(store)
    failed = everything(between.folder(KIND, KEY))
    assert failed == everything(live) != nothing
    finish(live)
    after = StoreSnapshot.of(store)
    assert everything(after.folder(KIND, KEY)) == everything(live) != failed
    assert before.folder(KIND, KEY).state() == nothing[0]
    assert between.folder(KIND, KEY).state().status is Status.FAILED
    live.paths.result.write_text("{}")
    assert after.folder(KIND, KEY).is_done()
    assert StoreSnapshot.of(store).folder(KIND, KEY).state().status is Status.DAMAGED
    assert StoreSnapshot.of(after) is after


def test_a_stage_that_ends_while_it_is_read_is_not_damaged(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt is read before what it finished: it is seen at work, or with its output."""
    live, completion = store.folder(KIND, KEY), folders.completion
    attempt = live.begin("test", {})

    def slow(*paths: Any) -> Any:
        if not live.paths.done.exists():
            read = completion(*paths)
            with attempt:
                attempt.finish({})
            return read
        return completion(*paths)

    monkeypatch.setattr(folders, "completion", slow)
    reading = StoreSnapshot.of(store).folder(KIND, KEY)
    reading.finished_at()
    assert live.is_done()
    newest = reading.attempts.newest()
    assert newest.end is None


def test_each_stage_is_checked_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    finish(store.folder(KIND, KEY))
    calls: Counter[Path] = Counter()
    completion = folders.completion

    def counted(paths: Any) -> Any:
        calls[paths.folder] += 1
        return completion(paths)

    monkeypatch.setattr(folders, "completion", counted)
    snapshot = StoreSnapshot.of(store)
    for _ in range(2):
        everything(snapshot.folder(KIND, KEY))
    assert list(calls.values()) == [1]
