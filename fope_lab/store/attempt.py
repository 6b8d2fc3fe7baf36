"""An attempt at a stage: the right to work on it, the writer that it gives to the work, its end."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

from fope_lab.store.attempts import Attempts, Ending, contributors, device_of, time_before
from fope_lab.store.checkpoint import newest_complete
from fope_lab.store.completion import complete
from fope_lab.store.lease import Heartbeat
from fope_lab.store.records import StoreError
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

        `execution_record` says what the attempt ran on. DONE has it with the processor time of this
        process, and the time that the work before the resumed checkpoint took, if that was on the
        same device. `parents` has, by role, the digest of what the attempt read of each parent.
        Raises StoreError if the checkpoint that the result belongs to is no longer whole, and
        LeaseLostError if a newer attempt has begun.
        """
        self.attempts.require_newest(self.token)
        self.writer.close()
        newest, expected = newest_complete(self.writer.paths), self.writer.newest
        if newest != expected:
            raise StoreError(
                f"{self.writer.paths.folder} can't be finished: its result belongs to"
                f" {expected and expected.path}, but the newest complete checkpoint is"
                f" {newest and newest.path}"
            )
        output = None if newest is None or newest.is_partial() else newest
        taken = self.writer.stopwatch.read()
        details: dict[str, Any] = {"time": time.time(), "seconds": taken.seconds}
        details["earlier"] = asdict(time_before(self.attempts, self.token))
        if parents is not None:
            details["parents"] = dict(parents)
        if execution_record is not None:
            records = contributors(self.attempts, self.token)
            same_device = len(set(map(device_of, records))) == 1
            details["ran"] = {
                **execution_record,
                "cpu_seconds": taken.cpu_seconds,
                "resumed": self.writer.resumed_from is not None,
                "resumed_time": asdict(self.writer.resumed_time) if same_device else None,
            }
        complete(
            self.writer.paths,
            self.token,
            result,
            checkpoint=output,
            segments=self.writer.segments(),
            details=details,
        )
        remove_old_checkpoints(self.writer.paths, keep=0 if output is None else 1)
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
