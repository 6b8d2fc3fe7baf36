"""The store: a folder for each stage, which alone says what was asked, measured and finished.

    <store>/<kind>/<key>/
      stage.yaml      what was asked: the resolved configuration and where it came from
      attempts/       who worked on it (fope_lab/lease.py)
      metrics/        <token>-<step>.jsonl: a segment per attempt and checkpoint interval
      checkpoint/     <token>-<step>/, each with a manifest.json that was written last
      progress.json   for the live table; never read as a result
      log.txt  result.json  DONE

A checkpoint counts when its manifest is there and every file in it has the size it says; a stage
is done when DONE is there and what it names is whole. Rows past the checkpoint that an attempt
went on from belong to the lost attempt and are not read.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import socket
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from fope_lab.durable import (
    create_exclusive,
    files_below,
    is_full_disk,
    read_json,
    sha256_file,
    sync_directory,
    sync_file,
    write_atomic,
    write_json,
)
from fope_lab.lease import Attempts, Heartbeat

PROGRESS_SECONDS = 1.0
KEPT_CHECKPOINTS = 2  # the newest, and the one before it should the newest turn out damaged


class StoreError(Exception):
    """The store can't be used: where, and why."""


class StageDoneError(StoreError):
    """This stage is finished: there is nothing to begin."""


class LeaseLostError(StoreError):
    """A newer attempt took over this stage while the present one was still running."""


@dataclass(frozen=True)
class Row:
    """One row of metrics: `timestamp` in milliseconds since the epoch, kept for exact replays."""

    step: int
    timestamp: int
    values: dict[str, float]


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint directory, written by attempt `token` after `step` steps."""

    path: Path
    token: int
    step: int


class Store:
    """The folder under which all stages live. Raises StoreError if it can't be written."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).expanduser().absolute()
        probe = self.root / f".probe-{uuid.uuid4().hex}"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            exclusive = create_exclusive(probe, "") and not create_exclusive(probe, "")
            probe.unlink()
        except OSError as error:
            raise StoreError(
                f"the store {self.root} can't be written: {error.strerror or error}. "
                "Choose another folder with --store or FOPE_LAB_STORE."
            ) from error
        if not exclusive:
            raise StoreError(
                f"the store {self.root} lies on a file system that can't create a file "
                "exclusively, so two drivers could train one stage at once. "
                "Use a local disk or NFS version 3 or later."
            )

    def folder(self, kind: str, key: str) -> StageFolder:
        """The folder of a stage, whether it exists or not."""
        return StageFolder(self.root / kind / key)

    def times(self) -> Iterator[dict[str, Any]]:
        """Of every stage that was finished and says what it ran on: that, as DONE keeps it, and
        the attempt's wall time as `seconds`. A small file a stage is read, no more."""
        for path in sorted(self.root.glob("*/*/DONE")):
            done = read_json(path)
            if done is not None and done.get("ran") is not None:
                yield {**done["ran"], "seconds": float(done["seconds"])}


class StageFolder:
    """Reading a stage's folder; `begin` opens it for writing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kind, self.key = path.parent.name, path.name
        self.attempts = Attempts(path)

    def is_done(self) -> bool:
        """Whether DONE is there and the result and checkpoint that it names are whole."""
        return self._done() is not None

    def request(self) -> dict[str, Any] | None:
        """What was asked (stage.yaml), or None if no attempt was ever made."""
        try:
            return dict(yaml.safe_load((self.path / "stage.yaml").read_text(encoding="utf-8")))
        except (OSError, yaml.YAMLError):
            return None

    def result(self) -> dict[str, Any] | None:
        """result.json of a finished stage, else None."""
        return read_json(self.path / "result.json") if self.is_done() else None

    def seconds(self) -> float | None:
        """Wall time in seconds that the finishing attempt took, or None."""
        done = self._done()
        return None if done is None else float(done["seconds"])

    def finished_at(self) -> float | None:
        """When the stage was finished, in seconds since the epoch, or None."""
        done = self._done()
        return None if done is None else float(done["time"])

    def started_at(self) -> float | None:
        """When the first attempt began, in seconds since the epoch, or None."""
        first = self.attempts.record(1)
        return None if first is None else float(first.details["started"])

    def progress(self) -> dict[str, Any] | None:
        """The last progress report of the newest attempt, or None."""
        progress = read_json(self.path / "progress.json")
        if progress is None or progress.get("token") != self.attempts.newest_token():
            return None
        return dict(progress)

    def failure(self) -> dict[str, Any] | None:
        """{"error", "traceback", "time"} if the newest attempt failed, else None."""
        newest = self.attempts.newest()
        if newest is None or newest.end is None or newest.end.get("outcome") != "failed":
            return None
        return dict(newest.end)

    def checkpoint(self) -> Checkpoint | None:
        """The final checkpoint of a finished stage, else the newest complete one, else None."""
        done = self._done()
        if done is not None:
            return (
                _parse_checkpoint(self.path / "checkpoint" / done["checkpoint"])
                if done["checkpoint"]
                else None
            )
        return next((c for c in self._checkpoints() if _is_complete(c.path)), None)

    def rows(self) -> list[Row]:
        """The durable rows in order of writing: all of a finished stage, otherwise those up to
        the newest complete checkpoint."""
        done = self._done()
        if done is not None:
            return self._lineage_rows(done["token"], None)
        checkpoint = self.checkpoint()
        return [] if checkpoint is None else self._lineage_rows(checkpoint.token, checkpoint.step)

    def begin(
        self, owner: str, request: Mapping[str, Any], supersede: int | None = None
    ) -> Attempt:
        """Take the lease and open the stage for writing.

        `owner` names who asks (a retry by the same owner takes over at once), `supersede` the token
        of an attempt that the caller has watched go stale. Raises lease.LeaseHeldError, and
        StageDoneError if the stage is finished (perhaps a moment ago, by another driver).
        """
        token = self.attempts.next_token(owner, supersede)
        if self.is_done():
            raise StageDoneError(f"{self.path} is finished")
        resumed = next((c for c in self._checkpoints() if _is_intact(c.path)), None)
        damaged = [c.path.name for c in self._checkpoints() if not _is_complete(c.path)]
        self.attempts.take(
            token,
            owner,
            {
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "resumed_from": None
                if resumed is None
                else {"token": resumed.token, "step": resumed.step},
            },
        )
        if not self.is_done():  # a DONE that is there names what was damaged or removed since
            (self.path / "DONE").unlink(missing_ok=True)
        if not (self.path / "stage.yaml").exists():
            text = yaml.safe_dump(dict(request), sort_keys=False, allow_unicode=True)
            write_atomic(self.path / "stage.yaml", text)
        attempt = Attempt(self, token, resumed)
        for name in damaged:
            attempt.note(f"checkpoint {name} is not whole and is not used")
        return attempt

    def _done(self) -> dict[str, Any] | None:
        done = read_json(self.path / "DONE")
        if done is None:
            return None
        try:
            result = (self.path / "result.json").read_bytes()
        except OSError:
            return None
        if hashlib.sha256(result).hexdigest() != done["result_sha256"]:
            return None
        if done["checkpoint"] and not _is_complete(self.path / "checkpoint" / done["checkpoint"]):
            return None
        return dict(done)

    def _checkpoints(self) -> list[Checkpoint]:
        """All checkpoint directories, complete or not, newest attempt and step first."""
        found = [_parse_checkpoint(p) for p in (self.path / "checkpoint").glob("[0-9]*-[0-9]*")]
        return sorted(found, key=lambda c: (c.token, c.step), reverse=True)

    def _lineage_rows(self, token: int, limit: int | None) -> list[Row]:
        record = self.attempts.record(token)
        origin = record.details.get("resumed_from") if record else None
        before = [] if origin is None else self._lineage_rows(origin["token"], origin["step"])
        own = self._attempt_rows(token)
        return before + [row for row in own if limit is None or row.step <= limit]

    def _attempt_rows(self, token: int) -> Iterator[Row]:
        for path in sorted((self.path / "metrics").glob(f"{token:04d}-*.jsonl")):
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    raw = json.loads(line)
                except ValueError:
                    break  # the line that a killed process was writing
                yield Row(raw["step"], raw["time"], raw["values"])


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
        complete = [c for c in self.folder._checkpoints() if _is_complete(c.path)]
        for checkpoint in complete[count:]:
            shutil.rmtree(checkpoint.path, ignore_errors=True)

    def _remove_leftovers(self) -> None:
        for path in (self.folder.path / "checkpoint").glob(".[0-9]*"):
            if int(path.name[1:5]) < self.token:
                shutil.rmtree(path, ignore_errors=True)


def _parse_checkpoint(path: Path) -> Checkpoint:
    token, step = path.name.split("-")
    return Checkpoint(path, int(token), int(step))


def _is_complete(path: Path) -> bool:
    """Whether the manifest is there and every file it names has the size it says."""
    manifest = read_json(path / "manifest.json")
    if manifest is None:
        return False
    for name, entry in manifest["files"].items():
        try:
            if (path / name).stat().st_size != entry["size"]:
                return False
        except OSError:
            return False
    return True


def _is_intact(path: Path) -> bool:
    """Complete, and every file's content is what was written (reads it all: for a resume)."""
    if not _is_complete(path):
        return False
    manifest = read_json(path / "manifest.json")
    return manifest is not None and all(
        sha256_file(path / name) == entry["sha256"] for name, entry in manifest["files"].items()
    )
