"""A damaged file is damage of one stage, and never an error of who reads it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fope_lab.store.attempt import Attempt
from fope_lab.store.folder import StageFolder
from fope_lab.store.records import StoreError
from fope_lab.store.state import Status

pytestmark = pytest.mark.faults

DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "removed": lambda content: None,
    "emptied": lambda content: b"",
    "cut in half": lambda content: content[: len(content) // 2],
    "zeroed": lambda content: bytes(len(content)),
    "one bit flipped": lambda content: _with_flipped_bit(content, len(content) // 2),
    "one bit flipped at the start": lambda content: _with_flipped_bit(content, 0),
    "not text": lambda content: b"\xff\xfe" + content,
    "an empty mapping": lambda content: b"{}",
    "an empty list": lambda content: b"[]",
    "a number": lambda content: b"3",
    "null": lambda content: b"null",
    "text for each value": lambda content: _with_values(content, "7"),
    "null for each value": lambda content: _with_values(content, None),
    "a list for each value": lambda content: _with_values(content, [1]),
    "every other field": lambda content: _with_fields(content, 0),
    "the other fields": lambda content: _with_fields(content, 1),
    "deep": lambda content: b"[" * 100_000,
}


def _with_flipped_bit(content: bytes, at: int) -> bytes:
    """The bytes with the lowest bit of one byte flipped: of a digit, that gives another digit."""
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :] if content else content


def _with_values(content: bytes, value: object) -> bytes:
    """JSON in which every field of the outermost mapping has another value."""
    try:
        return json.dumps(dict.fromkeys(json.loads(content), value)).encode()
    except (ValueError, TypeError):
        return b'{"a": 1}'


def _with_fields(content: bytes, first: int) -> bytes:
    """JSON with every second field of the outermost mapping."""
    try:
        return json.dumps(dict(list(json.loads(content).items())[first::2])).encode()
    except (ValueError, AttributeError):
        return b"{}"


def write(path: Path) -> None:
    (path / "model").write_bytes(bytes(range(256)))


def work(attempt: Attempt, first: int) -> None:
    for step in (first, first + 1):
        attempt.writer.log(step, {"loss": 1.0 / step})
        attempt.writer.progress(step, 4)
        attempt.writer.save_checkpoint(step, write)


def make(path: Path, *, finished: bool) -> StageFolder:
    """A stage that was interrupted once, and then finished or failed."""
    folder = StageFolder(path / "pretrain" / "key")
    with folder.begin("first", {"config": {}}, made_by={"source": "s"}) as attempt:
        work(attempt, 1)
    with folder.begin("second", {"config": {}}) as attempt:
        work(attempt, 3)
        if finished:
            attempt.finish({"format": 2})
        else:
            attempt.fail(ArithmeticError("no luck"))
    return folder


def right_rows(last: int) -> list[tuple[int, dict[str, float]]]:
    """The rows of a stage that got to step `last`."""
    return [(step, {"loss": 1.0 / step}) for step in range(1, last + 1)]


def rows(folder: StageFolder) -> list[tuple[int, dict[str, float]]]:
    return [(row.step, row.values) for row in folder.rows()]


def read_all(folder: StageFolder) -> tuple[object, ...]:
    """Everything that others read of a stage."""
    names = (
        *("state", "rows", "result", "request", "time_taken", "finished_at", "started_at"),
        *("progress", "checkpoint", "final_checkpoint", "makers", "is_done"),
    )
    return tuple(getattr(folder, name)() for name in names)


def files(folder: StageFolder) -> list[Path]:
    return sorted(path for path in folder.path.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, StageFolder]:
    """A stage by whether it is finished. Tests damage copies of it."""
    path = tmp_path_factory.mktemp("samples")
    return {finished: make(path / str(finished), finished=finished) for finished in (True, False)}


def copy(sample: StageFolder, path: Path) -> StageFolder:
    shutil.copytree(sample.path, path)
    return StageFolder(path)


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("finished", [True, False], ids=["finished", "failed"])
def test_every_file_may_be_damaged(
    samples: dict[bool, StageFolder], tmp_path: Path, finished: bool, damage: str
) -> None:
    sample = samples[finished]
    names = [path.relative_to(sample.path) for path in files(sample)]
    assert len(names) > 10
    for number, name in enumerate(names):
        folder = copy(sample, tmp_path / str(number))
        path = folder.path / name
        before = path.read_bytes()
        after = DAMAGE[damage](before)
        if after is None:
            path.unlink()
        else:
            path.write_bytes(after)
        read_all(folder)
        if folder.is_done():
            assert folder.result() == {"format": 2}, name
            final = folder.final_checkpoint()
            assert (final.step, (final.path / "model").stat().st_size) == (4, 256), name
            assert rows(folder) == right_rows(4), name
            continue
        assert folder.result() is None, name
        with folder.begin(
            "third", {"config": {}}, supersede=folder.attempts.newest_token()
        ) as attempt:
            resumed = attempt.writer.resumed_from
            assert resumed is None or (resumed.path / "model").read_bytes() == bytes(range(256))
            work(attempt, first := resumed.step + 1 if resumed else 1)
            attempt.finish({"format": 2})
        assert folder.state().status is Status.DONE, name
        assert rows(folder) == right_rows(first + 1), name
        assert folder.request() == {"config": {}}, name
        read_all(folder)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_two_files_may_have_any_bytes(
    samples: dict[bool, StageFolder], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    sample = samples[data.draw(st.booleans())]
    folder = copy(sample, tmp_path_factory.mktemp("stage") / "key")
    for path in data.draw(st.lists(st.sampled_from(files(folder)), min_size=1, max_size=2)):
        path.write_bytes(data.draw(st.binary(max_size=40) | st.sampled_from([b"{}", b"[]", b"1"])))
    read_all(folder)


def test_a_token_that_came_again_ends_the_lineage_of_rows(tmp_path: Path) -> None:
    """`attempts/` was removed, which people do to break a lock."""
    folder = make(tmp_path, finished=False)
    for path in list(folder.attempts.path.iterdir()):
        path.unlink()
    with folder.begin("third", {}) as attempt:
        work(attempt, 5)
        attempt.finish({})
    assert folder.state().status is Status.DONE
    assert [row.step for row in folder.rows()][-2:] == [5, 6]


@pytest.mark.parametrize("damage", ["removed", "emptied", "one bit flipped"])
@pytest.mark.parametrize("resumed", [False, True])
def test_rows_damaged_while_the_stage_runs_are_not_believed(
    tmp_path: Path, damage: str, resumed: bool
) -> None:
    """Rows of a checkpoint are damaged, and the attempt goes on without reading them again."""
    folder = StageFolder(tmp_path / "pretrain" / "key")
    attempt = folder.begin("me", {})
    attempt.writer.log(1, {"loss": 1.0})
    attempt.writer.save_checkpoint(1, write)
    if resumed:
        attempt.release()
        attempt = folder.begin("me", {})
    [segment] = (folder.path / "metrics").iterdir()
    content = DAMAGE[damage](segment.read_bytes())
    segment.unlink() if content is None else segment.write_bytes(content)
    attempt.writer.log(2, {"loss": 0.5})
    attempt.writer.save_checkpoint(2, write)
    attempt.finish({})
    state = folder.state()
    assert state.status is Status.DAMAGED
    assert f"metrics/{segment.name}" in state.reason
    with folder.begin("me", {}) as again:
        assert again.writer.resumed_from is None


@pytest.mark.parametrize("finished", [True, False])
def test_a_folder_of_another_stage_is_not_believed(tmp_path: Path, finished: bool) -> None:
    other, folder = StageFolder(tmp_path / "pretrain/a"), StageFolder(tmp_path / "pretrain/b")
    with other.begin("me", {}) as attempt:
        attempt.writer.save_checkpoint(1, write)
        if finished:
            attempt.finish({})
    shutil.copytree(other.path, folder.path)
    name = "DONE" if finished else "checkpoint/0001-000000001/manifest.json"
    assert folder.damage() == [f"{name} (of pretrain/a)"]
    if finished:
        reason = "finished earlier, but damaged or missing: DONE (of pretrain/a)"
        assert folder.state().reason == reason
    with folder.begin("me", {}) as attempt:
        assert attempt.writer.resumed_from is None


@pytest.mark.parametrize("name", ["DONE", "stage.yaml", "result.json", "progress.json"])
def test_a_folder_in_the_place_of_a_file_is_moved_away(tmp_path: Path, name: str) -> None:
    folder = StageFolder(tmp_path / "pretrain" / "key")
    with folder.begin("me", {}) as attempt:
        attempt.writer.save_checkpoint(1, write)
        attempt.finish({})
    (folder.path / name).unlink(missing_ok=True)
    (folder.path / name).mkdir()
    if folder.is_done():  # nothing reads the progress of a finished stage
        assert name == "progress.json"
        return
    with folder.begin("me", {}) as attempt:
        attempt.finish({})
    assert folder.is_done()
    assert (folder.path / "set-aside/0002" / name).is_dir()


@pytest.mark.parametrize("place", ["pretrain", "pretrain/key"])
def test_a_file_in_the_place_of_a_folder_is_one_clear_error(tmp_path: Path, place: str) -> None:
    folder = StageFolder(tmp_path / "pretrain" / "key")
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).touch()
    with pytest.raises(StoreError, match=r"is a file, and must be a folder; move it away"):
        folder.begin("me", {})


def test_a_pipe_in_the_place_of_a_file_is_not_read(tmp_path: Path) -> None:
    folder = StageFolder(tmp_path / "pretrain" / "key")
    folder.path.mkdir(parents=True)
    os.mkfifo(folder.path / "DONE")
    assert not folder.is_done()
