"""An attempt at a stage: its metrics, its checkpoints, its end."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import time
import traceback
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from fope_lab.atomic_files import (
    create_exclusive,
    files_below,
    is_full_disk,
    sha256_file,
    sync_directory,
    sync_file,
    write_atomic,
    write_json,
)
from fope_lab.store.checkpoint import Checkpoint, is_complete
from fope_lab.store.lease import Heartbeat
from fope_lab.store.problems import LeaseLostError, StoreError

if TYPE_CHECKING:
    from fope_lab.store.folder import StageFolder

PROGRESS_SECONDS = 1.0
KEPT_CHECKPOINTS = 2  # the newest, and the one before it should the newest turn out damaged


@dataclass
class Attempt:
    """One try at a stage, holding its lease; used as a context manager.

    Leaving the block with an exception records the failure; leaving it normally without `finish`
    releases the lease (the work goes on from its last checkpoint later).
    """

    folder: StageFolder
    token: int
    resumed_from: Checkpoint | None
    _segment: io.TextIOWrapper | None = None
    _segment_step: int = 0
    _shown: float = 0.0
    _started: float = field(default_factory=time.monotonic)
    _started_cpu: float = field(default_factory=time.process_time)
    _ended: bool = False

    def __post_init__(self) -> None:
        self._segment_step = self.resumed_from.step if self.resumed_from else 0
        self._newest = self.resumed_from
        self._heartbeat = Heartbeat(self.folder.attempts, self.token)
        self._remove_leftovers()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and not self._ended:
            text = "".join(traceback.format_exception(error))
            # A full disk must not hide the error that is being reported, nor keep the lease.
            with contextlib.suppress(OSError):
                self._close_segment()
            with contextlib.suppress(OSError):
                self.note(text)
            self._end(
                {
                    "outcome": "failed",
                    "error": str(error) or type(error).__name__,
                    "type": type(error).__name__,
                    "traceback": text,
                }
            )
        elif not self._ended:
            try:
                self._close_segment()
            finally:
                self._end({"outcome": "released"})

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Append a row of metrics. Buffered: it becomes durable with the next checkpoint."""
        row = {"step": step, "time": time.time_ns() // 1_000_000, "values": dict(values)}
        if self._segment is None:
            name = f"{self.token:04d}-{self._segment_step:09d}.jsonl"
            path = self.folder.path / "metrics" / name
            path.parent.mkdir(exist_ok=True)
            self._segment = path.open("a", encoding="utf-8")
        self._segment.write(json.dumps(row) + "\n")

    def progress(self, step: int, total: int, **values: float | str) -> None:
        """Tell the live table how far this attempt is; at most one write a second."""
        now = time.monotonic()
        if now - self._shown < PROGRESS_SECONDS and step < total:
            return
        self._shown = now
        write_json(
            self.folder.path / "progress.json",
            {
                "token": self.token,
                "step": step,
                "total": total,
                "seconds": now - self._started,
                "first_step": self.resumed_from.step if self.resumed_from else 0,
                **values,
            },
        )

    def note(self, text: str) -> None:
        """Append to log.txt."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        with (self.folder.path / "log.txt").open("a", encoding="utf-8") as file:
            file.write(f"{stamp}Z [{self.token}] {text.rstrip()}\n")

    def save_checkpoint(self, step: int, write: Callable[[Path], None]) -> Checkpoint:
        """Have `write` fill a fresh directory, then make it the stage's checkpoint of `step`.

        The metrics logged so far become durable first, so that a checkpoint never has fewer rows
        than steps. Raises LeaseLostError if another attempt took over, and StoreError if the disk
        is full.
        """
        self._check_lease()
        parent = self.folder.path / "checkpoint"
        temporary = parent / f".{self.token:04d}-{step:09d}.{uuid.uuid4().hex}"
        try:
            self._close_segment()
            self._segment_step = step
            temporary.mkdir(parents=True)
            write(temporary)
            self._write_manifest(temporary, step)
        except Exception as error:
            shutil.rmtree(temporary, ignore_errors=True)  # it may be what fills the disk
            if is_full_disk(error):
                raise self._no_space(step) from error
            raise
        final = parent / f"{self.token:04d}-{step:09d}"
        if final.exists():  # this very attempt saved this step before: the same content again
            shutil.rmtree(final)
        os.rename(temporary, final)
        sync_directory(parent)
        self._keep(KEPT_CHECKPOINTS)
        self._newest = Checkpoint(final, self.token, step)
        return self._newest

    def saved_by_worker(self, checkpoint: Checkpoint | None) -> None:
        """Another process has saved this, its last checkpoint, under this attempt's token."""
        self._newest = checkpoint

    def finish(self, result: Mapping[str, Any], ran: Mapping[str, Any] | None = None) -> None:
        """Write result.json and DONE: from here on the stage is never run again.

        `ran` says what the attempt ran on. With it DONE keeps the seconds that the processors of
        this process were at work, which other programs on the machine don't lengthen, and whether
        the attempt went on from an earlier one. Raises StoreError if the checkpoint that the result
        is of is no longer whole.
        """
        self._check_lease()
        self._close_segment()
        newest = self.folder.checkpoint()
        if newest != self._newest:
            raise StoreError(
                f"{self.folder.path} can't be finished: its result is of"
                f" {self._newest and self._newest.path}, but the newest complete checkpoint is"
                f" {newest and newest.path}"
            )
        content = json.dumps(dict(result), indent=1, ensure_ascii=False).encode()
        write_atomic(self.folder.path / "result.json", content)
        seconds = time.monotonic() - self._started
        done: dict[str, Any] = {
            "token": self.token,
            "time": time.time(),
            "seconds": seconds,
            "checkpoint": newest.path.name if newest else None,
            "result_sha256": hashlib.sha256(content).hexdigest(),
        }
        if ran is not None:
            done["ran"] = {
                **ran,
                "cpu_seconds": time.process_time() - self._started_cpu,
                "resumed": self.resumed_from is not None,
            }
        path = self.folder.path / "DONE"
        if not create_exclusive(path, json.dumps(done, indent=1)):
            raise LeaseLostError(f"{self.folder.path} was finished by another attempt")
        self._keep(1)
        self._end({"outcome": "done", "seconds": seconds})

    def _write_manifest(self, directory: Path, step: int) -> None:
        """Make the files of a checkpoint durable, and list them."""
        files = {}
        for path in files_below(directory):
            sync_file(path)
            files[str(path.relative_to(directory))] = {
                "size": path.stat().st_size,
                "sha256": sha256_file(path),
            }
        manifest = {"step": step, "token": self.token, "files": files}
        write_json(directory / "manifest.json", manifest)

    def _no_space(self, step: int) -> StoreError:
        last = self.folder.checkpoint()
        kept = "there is none yet" if last is None else f"that is {last.path} of step {last.step}"
        return StoreError(
            f"no space left in {self.folder.path} for the checkpoint of step {step}. Make room and"
            f" run again: the stage goes on from its last complete checkpoint ({kept})."
        )

    def _end(self, outcome: Mapping[str, Any]) -> None:
        self._heartbeat.stop()
        self._ended = True
        # A full disk must not hide the error that is being reported; the lease then goes stale.
        with contextlib.suppress(OSError):
            self.folder.attempts.end(self.token, {"time": time.time(), **outcome})

    def _check_lease(self) -> None:
        newest = self.folder.attempts.newest_token()
        if newest != self.token:
            raise LeaseLostError(
                f"{self.folder.path}: attempt {self.token} was superseded by attempt {newest}"
            )

    def _close_segment(self) -> None:
        segment, self._segment = self._segment, None
        if segment is not None:
            try:
                segment.flush()
                os.fsync(segment.fileno())
            finally:
                with contextlib.suppress(OSError):  # what it holds can't be written now either
                    segment.close()

    def _keep(self, count: int) -> None:
        complete = [c for c in self.folder.checkpoints() if is_complete(c.path)]
        for checkpoint in complete[count:]:
            shutil.rmtree(checkpoint.path, ignore_errors=True)

    def _remove_leftovers(self) -> None:
        for path in (self.folder.path / "checkpoint").glob(".[0-9]*"):
            if int(path.name[1:5]) < self.token:
                shutil.rmtree(path, ignore_errors=True)
