"""An attempt at a stage: the right to work on it, the writer that it gives to the work, its end.

It ends well by writing result.json, and DONE, which names all that the stage consists of.
`completion` tells whether that is still whole, and `result_file` where the result is. MLflow and
the report read it by StageFolder.result (folder.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fope_lab.config.atomic_files import create_exclusive, sync_directory, write_atomic
from fope_lab.store.attempts import Attempts, Ending, contributors, device_of, time_before
from fope_lab.store.checkpoint import (
    MANIFEST,
    changed_files,
    digests_of,
    incomplete_files,
    newest_complete,
)
from fope_lab.store.lease import Heartbeat
from fope_lab.store.records import LeaseLostError, StagePaths, StoreError, read_done
from fope_lab.store.writer import FolderWriter, remove_old_checkpoints


class Attempt:
    """One attempt at a stage, used as a context manager; a heartbeat keeps its lease alive.

    If the block raises, the failure is recorded; if it ends without `finish`, the lease is free.
    On a full disk nothing can be recorded: the error reaches the caller, and the lease goes stale.
    """

    def __init__(self, attempts: Attempts, writer: FolderWriter) -> None:
        self.attempts, self.writer, self.token = attempts, writer, writer.handle.token
        self.heartbeat = Heartbeat(attempts, self.token)
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and not self._ended:
            self.fail(error)
        elif not self._ended:
            self.release()

    def release(self, ending: Ending = Ending.RELEASED) -> None:
        """End the attempt before the stage is finished, so that a later one may resume it."""
        try:
            self.writer.close()
        finally:
            self._end(ending)

    def fail(self, error: BaseException) -> None:
        """End the attempt with an error, which becomes the reason of the stage's failure."""
        self._end_by(error, Ending.FAILED)

    def interrupt(self, error: BaseException) -> None:
        """End the attempt with an error after which the stage is tried again at once."""
        self._end_by(error, Ending.INTERRUPTED)

    def finish(
        self,
        result: Mapping[str, Any],
        execution_record: Mapping[str, Any] | None = None,
        parents: Mapping[str, str] | None = None,
    ) -> None:
        """Write result.json and DONE. From then on the stage is never run again.

        The result is written under the attempt's own name, then DONE is created exclusively with
        the digests of everything that counts, and only then the result gets its final name. So
        whichever attempt creates DONE owns both, however long another one stalls in between.

        `execution_record` says what the attempt ran on. DONE has it with the processor time of this
        process, and the time that the work before the resumed checkpoint took, if that was on the
        same device. `parents` has, by role, the digest of what the attempt read of each parent.
        Raises StoreError if the checkpoint that the result belongs to is no longer whole, and
        LeaseLostError if a newer attempt has begun, or another one has finished the stage.
        """
        paths, attempts, token = self.writer.paths, self.attempts, self.token
        attempts.require_newest(token)
        self.writer.close()
        newest, expected = newest_complete(paths), self.writer.newest
        if newest != expected:
            raise StoreError(
                f"{paths.folder} can't be finished: its result belongs to"
                f" {expected and expected.path}, but the newest complete checkpoint is"
                f" {newest and newest.path}"
            )
        output = None if newest is None or newest.is_partial() else newest
        taken = self.writer.stopwatch.read()
        done: dict[str, Any] = {
            "stage": paths.name,
            "token": token,
            "time": time.time(),
            "seconds": taken.seconds,
            "earlier": asdict(time_before(attempts, token)),
        }
        if parents is not None:
            done["parents"] = dict(parents)
        if execution_record is not None:
            same_device = len(set(map(device_of, contributors(attempts, token)))) == 1
            done["ran"] = {
                **execution_record,
                "cpu_seconds": taken.cpu_seconds,
                "resumed": self.writer.resumed_from is not None,
                "resumed_time": asdict(self.writer.resumed_time) if same_device else None,
            }
        segments = self.writer.segments()
        content = json.dumps(dict(result), indent=1, ensure_ascii=False).encode()
        own = paths.result_of(token)
        write_atomic(own, content)
        named = [paths.request, *([] if output is None else [output.path / MANIFEST])]
        files = digests_of(paths.folder, [str(path.relative_to(paths.folder)) for path in named])
        done["checkpoint"] = None if output is None else output.path.name
        done["result_sha256"] = hashlib.sha256(content).hexdigest()
        done["files"] = {**files, **segments}
        while not create_exclusive(paths.done, json.dumps(done, indent=1)):
            if completion(paths) is not None:
                own.unlink(missing_ok=True)
                raise LeaseLostError(f"{paths.folder} was finished by another attempt")
            paths.done.unlink(missing_ok=True)  # a late attempt wrote it, and its output is gone
        os.replace(own, paths.result)
        sync_directory(paths.folder)
        remove_old_checkpoints(paths, keep=0 if output is None else 1)
        self._end(Ending.DONE)

    def _end_by(self, error: BaseException, ending: Ending) -> None:
        text = "".join(traceback.format_exception(error))
        # On a full disk, close and note fail as well; the attempt must end in any case.
        with contextlib.suppress(OSError):
            self.writer.close()
        with contextlib.suppress(OSError):
            self.writer.note(text)
        name = type(error).__name__
        self._end(ending, error=str(error) or name, type=name, traceback=text)

    def _end(self, ending: Ending, **details: Any) -> None:
        self._ended = True
        self.heartbeat.stop()
        seconds = self.writer.stopwatch.read().seconds
        # A full disk must not hide the error that is being reported. The lease then goes stale.
        with contextlib.suppress(OSError):
            self.attempts.end(self.token, ending, seconds=seconds, **details)


def completion(paths: StagePaths) -> dict[str, Any] | None:
    """The content of DONE if all that it names is whole, else None.

    The digests of small files are compared; of the checkpoint's files the sizes.
    """
    done = read_done(paths.done)
    return None if done is None or damage(paths, done) else done


def damage(paths: StagePaths, done: Mapping[str, Any]) -> list[str]:
    """The files that DONE names and that are missing or damaged; DONE itself if it is a copy."""
    if (stage := done["stage"]) != paths.name:
        return [f"{paths.done.name} (of {stage})"]
    damaged = changed_files(paths.folder, done["files"])
    if result_file(paths, done) is None:
        damaged.append(paths.result.name)
    if name := done["checkpoint"]:
        folder = f"{paths.checkpoints.name}/{name}"
        damaged += [f"{folder}/{file}" for file in incomplete_files(paths.folder / folder)]
    return list(dict.fromkeys(damaged))


def result_file(paths: StagePaths, done: Mapping[str, Any]) -> Path | None:
    """The file with the result that belongs to DONE, or None if it is damaged or missing."""
    for path in (paths.result, paths.result_of(done["token"])):
        with contextlib.suppress(OSError):
            if hashlib.sha256(path.read_bytes()).hexdigest() == done["result_sha256"]:
                return path
    return None


def move_aside(paths: StagePaths, output: Sequence[Path], token: int) -> Path:
    """Move files and folders to where attempt `token` puts them; returns that folder."""
    folder = paths.set_aside(token)
    if output:
        folder.mkdir(parents=True, exist_ok=True)
    for path in output:
        with contextlib.suppress(FileNotFoundError):  # a result that has got its final name
            os.rename(path, folder / path.name)
    sync_directory(paths.folder)
    return folder
