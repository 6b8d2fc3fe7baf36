"""What the work of a stage writes while it runs: rows of metrics, progress, notes, checkpoints.

`FolderWriter` writes to the stage's folder. A plain `RunWriter` writes nothing: of several workers
that train one model, worker 0 has a `FolderWriter` and the others have a `RunWriter`.

Every attempt writes a new segment of rows after each of its checkpoints. `durable_rows` reads them:
of a stage that is not done, those up to its newest checkpoint, not what a lost attempt wrote later.
StageFolder.rows (folder.py) gives them to MLflow (tracking/upload.py).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fope_lab.config.atomic_files import is_full_disk, sync_directory, write_json
from fope_lab.store.attempts import Attempts, Stopwatch, WorkTime
from fope_lab.store.checkpoint import (
    Checkpoint,
    digests_of,
    incomplete_files,
    list_checkpoints,
    newest_complete,
    write_manifest,
)
from fope_lab.store.lease import StopRequest, StopWatch
from fope_lab.store.records import StagePaths, StoreError, as_row

PROGRESS_SECONDS = 1.0
KEPT_CHECKPOINTS = 2  # the newest, and the one before it in case the newest turns out damaged


@dataclass(frozen=True)
class Row:
    """The metrics of a step, logged at `timestamp`, which is in milliseconds since the epoch."""

    step: int
    timestamp: int
    values: dict[str, float]


@dataclass(frozen=True)
class AttemptHandle:
    """What any process needs to write for an attempt. It can be pickled."""

    paths: StagePaths
    token: int
    resumed_from: Checkpoint | None
    segments: tuple[str, ...] = ()
    """The segments with the rows up to that checkpoint, by their paths from the stage's folder."""
    stop_file: Path | None = None
    """The file by which the driver asks the stage to stop (see `StopRequest`), if it has one."""


@dataclass(frozen=True)
class CheckpointDraft:
    """A checkpoint that is being written: nobody reads `folder` before it has its manifest."""

    checkpoint: Checkpoint
    folder: Path
    partial: bool = False
    segments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The segments of metrics with the rows up to the checkpoint's step."""
    work_time: WorkTime = field(default_factory=WorkTime)


class RunWriter:
    """What the work of a stage gets: where to write, and the checkpoint to resume from.

    This one writes nothing. Its checkpoints are those that the folder writer of the attempt saves.
    """

    def __init__(self, handle: AttemptHandle) -> None:
        self.handle, self.paths, self.resumed_from = handle, handle.paths, handle.resumed_from
        self.newest: Checkpoint | None = handle.resumed_from
        """The last checkpoint that was saved, or at first the one that the attempt resumed from."""
        self.observe: Callable[[], Mapping[str, float]] | None = None
        """What is measured of the machine whenever a row is logged, if due, for another row."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Append a row of metrics. It becomes durable with the next checkpoint."""

    def progress(
        self, step: int, total: int, *, at_once: bool = False, **values: float | str
    ) -> None:
        """Tell the progress view how far the work is, once a second unless `at_once`."""

    def is_stop_asked(self) -> bool:
        """Whether the driver asks the work to save a checkpoint and stop."""
        return False

    def note(self, text: str) -> None:
        """Append a note to the stage's log, with the time and the attempt's token."""

    def save_checkpoint(
        self, step: int, write: Callable[[Path], None], *, partial: bool = False
    ) -> Checkpoint:
        """Let `write` fill a new folder, and make it the stage's newest checkpoint.

        The rows logged so far become durable first, so that no checkpoint has fewer rows than
        steps. A `partial` one is there to go on from, and removed when the stage is finished.
        Raises LeaseLostError if a newer attempt has begun, and StoreError if the disk is full.
        """
        return self.commit(self.begin_checkpoint(step, partial=partial))

    def begin_checkpoint(self, step: int, *, partial: bool = False) -> CheckpointDraft:
        """Begin a checkpoint of `step`, which whoever fills its folder gives to `commit`.

        Rows that are logged from now on belong to the next one. Several workers fill the folder of
        worker 0's draft. Raises LeaseLostError if a newer attempt has begun.
        """
        token = self.handle.token
        path = self.paths.checkpoint(token, step)
        return CheckpointDraft(Checkpoint(path, token, step), path, partial)

    def commit(self, draft: CheckpointDraft) -> Checkpoint:
        """Make a draft whose folder is filled the stage's newest checkpoint.

        Another thread may do this while the work goes on. Raises as `save_checkpoint` does; nothing
        is left of the draft then.
        """
        self.newest = draft.checkpoint
        return self.newest

    def discard(self, draft: CheckpointDraft, error: BaseException) -> None:
        """Remove a draft that `error` kept from being filled. Raises StoreError on a full disk."""

    def close(self) -> None:
        """Make all rows durable. The next row starts a new segment."""


class FolderWriter(RunWriter):
    """Writes to the stage's folder, under the attempt's token, in any process."""

    def __init__(self, handle: AttemptHandle) -> None:
        super().__init__(handle)
        self.stopwatch = Stopwatch()
        """Measures the time of this attempt, in the process that has this writer."""
        self.resumed_time = handle.resumed_from.work_time() if handle.resumed_from else WorkTime()
        """The time of the work that the attempt goes on from."""
        self._first_step = handle.resumed_from.step if handle.resumed_from else 0
        self._segment: io.TextIOWrapper | None = None
        self._segment_step = self._first_step
        self._shown = 0.0
        self._stop = None if handle.stop_file is None else StopWatch(StopRequest(handle.stop_file))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._write_row(step, values)
        if self.observe is not None and (observed := self.observe()):
            self._write_row(step, observed)

    def _write_row(self, step: int, values: Mapping[str, float]) -> None:
        row = {"step": step, "time": time.time_ns() // 1_000_000, "values": dict(values)}
        if self._segment is None:
            path = self.paths.segment(self.handle.token, self._segment_step)
            path.parent.mkdir(exist_ok=True)
            self._segment = path.open("a", encoding="utf-8")
        self._segment.write(json.dumps(row) + "\n")

    def progress(
        self, step: int, total: int, *, at_once: bool = False, **values: float | str
    ) -> None:
        now = time.monotonic()
        if now - self._shown < PROGRESS_SECONDS and step < total and not at_once:
            return
        self._shown = now
        seconds = self.stopwatch.read().seconds
        own = {"token": self.handle.token, "step": step, "total": total, "seconds": seconds}
        write_json(self.paths.progress, {**own, "first_step": self._first_step, **values})

    def is_stop_asked(self) -> bool:
        return self._stop is not None and self._stop.is_made()

    def note(self, text: str) -> None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        with self.paths.log.open("a", encoding="utf-8") as file:
            file.write(f"{stamp}Z [{self.handle.token}] {text.rstrip()}\n")

    def save_checkpoint(
        self, step: int, write: Callable[[Path], None], *, partial: bool = False
    ) -> Checkpoint:
        draft = self.begin_checkpoint(step, partial=partial)
        try:
            write(draft.folder)
        except Exception as error:
            self.discard(draft, error)
            raise
        return self.commit(draft)

    def begin_checkpoint(self, step: int, *, partial: bool = False) -> CheckpointDraft:
        token = self.handle.token
        Attempts(self.paths.folder).require_newest(token)
        final = self.paths.checkpoint(token, step)
        folder = final.with_name(f".{final.name}.{uuid.uuid4().hex}")
        draft = CheckpointDraft(Checkpoint(final, token, step), folder, partial)
        try:
            self.close()
            self._segment_step = step
            folder.mkdir(parents=True)
            segments, work_time = self.segments(step), self.resumed_time + self.stopwatch.read()
        except Exception as error:
            self.discard(draft, error)
            raise
        return replace(draft, segments=segments, work_time=work_time)

    def commit(self, draft: CheckpointDraft) -> Checkpoint:
        final = draft.checkpoint.path
        try:
            Attempts(self.paths.folder).require_newest(draft.checkpoint.token)
            write_manifest(
                draft.folder,
                self.paths.name,
                draft.checkpoint.token,
                draft.checkpoint.step,
                draft.segments,
                draft.work_time,
                partial=draft.partial,
            )
            if final.exists():  # this attempt has saved this step before, with the same content
                shutil.rmtree(final)
            os.rename(draft.folder, final)
        except Exception as error:
            self.discard(draft, error)
            raise
        sync_directory(final.parent)
        remove_old_checkpoints(self.paths, keep=KEPT_CHECKPOINTS)
        self.newest = draft.checkpoint
        return self.newest

    def discard(self, draft: CheckpointDraft, error: BaseException) -> None:
        shutil.rmtree(draft.folder, ignore_errors=True)  # it may be what fills the disk
        if is_full_disk(error):
            last, step = newest_complete(self.paths), draft.checkpoint.step
            kept = f"that is {last.path} of step {last.step}" if last else "there is none yet"
            raise StoreError(
                f"no space left in {self.paths.folder} for the checkpoint of step {step}. Make room"
                f" and run again: the stage goes on from its last complete checkpoint ({kept})."
            ) from error

    def segments(self, step: int | None = None) -> dict[str, Mapping[str, Any]]:
        """The digests of the segments with all rows, or with those up to the checkpoint of `step`.

        What the last manifest says of a segment is kept, so that later damage to it is found.
        """
        before = self.handle.segments
        known = self.newest.segments() if self.newest else {}
        there = own_segments(self.paths, self.handle.token, step)
        own = sorted({*known, *there}.difference(before))
        new = digests_of(self.paths.folder, [n for n in (*before, *own) if n not in known])
        return {name: known.get(name) or new[name] for name in (*before, *own)}

    def close(self) -> None:
        segment, self._segment = self._segment, None
        if segment is not None:
            try:
                segment.flush()
                os.fsync(segment.fileno())
            finally:
                with contextlib.suppress(OSError):  # the buffer can't be written now either
                    segment.close()


def remove_old_checkpoints(paths: StagePaths, keep: int) -> None:
    """Remove all complete checkpoints of a stage but the newest `keep`."""
    complete = [c.path for c in list_checkpoints(paths) if not incomplete_files(c.path)]
    for path in complete[keep:]:
        # Under its own name, half of it would look damaged.
        removed = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        with contextlib.suppress(OSError):
            os.rename(path, removed)
            shutil.rmtree(removed, ignore_errors=True)


def remove_unfinished_checkpoints(paths: StagePaths, before: int) -> None:
    """Remove what attempts before this token left of checkpoints half written or removed."""
    for path in paths.checkpoints.glob(".[0-9]*"):
        if int(path.name[1:5]) < before:
            shutil.rmtree(path, ignore_errors=True)


def own_segments(paths: StagePaths, token: int, step: int | None = None) -> list[str]:
    """The segments of an attempt that it began before its checkpoint of `step`, if given."""
    found = sorted(paths.metrics.glob(f"{token:04d}-*.jsonl"))
    before = [p for p in found if step is None or int(p.stem.partition("-")[2]) < step]
    return [f"{paths.metrics.name}/{path.name}" for path in before]


def durable_rows(
    paths: StagePaths, done: Mapping[str, Any] | None, checkpoint: Checkpoint | None
) -> list[Row]:
    """All rows of a finished stage, else those up to its newest complete `checkpoint`."""
    if done is not None:
        names = [name for name in done["files"] if name.startswith(f"{paths.metrics.name}/")]
    else:
        names = list(checkpoint.segments()) if checkpoint else []
    return [row for name in names for row in _rows(paths.folder / name)]


def _rows(path: Path) -> Iterator[Row]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        row = None
        with contextlib.suppress(ValueError, RecursionError):
            row = as_row(json.loads(line))
        if row is None:
            break  # a killed process was writing this line, or it is damaged
        yield Row(row["step"], row["time"], row["values"])
