"""An attempt at a stage: the right to work on it, the writer that it gives to the work, its end."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

from fope_lab.config.atomic_files import create_exclusive, sync_directory, write_atomic
from fope_lab.store.attempts import Attempts, Ending, contributors, device_of, time_before
from fope_lab.store.checkpoint import MANIFEST, digests_of, newest_complete
from fope_lab.store.completion import completion
from fope_lab.store.lease import Heartbeat
from fope_lab.store.records import LeaseLostError, StoreError
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
