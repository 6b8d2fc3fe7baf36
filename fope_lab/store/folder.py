"""A stage's folder: what was asked for, its state, what is finished, and how to begin work."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from fope_lab.config.atomic_files import write_atomic
from fope_lab.store.attempt import Attempt, completion, damage, move_aside, result_file
from fope_lab.store.attempts import (
    AttemptRecord,
    Attempts,
    Ending,
    TimeTaken,
    contributors,
    time_of_done,
)
from fope_lab.store.checkpoint import (
    Checkpoint,
    damage_of_checkpoint,
    list_checkpoints,
    newest_complete,
    newest_intact,
    require_intact,
)
from fope_lab.store.lease import LOOK_SECONDS, patience_with
from fope_lab.store.records import (
    StageDoneError,
    StagePaths,
    StoreError,
    read_done,
    read_progress,
    read_result,
)
from fope_lab.store.state import NOT_STARTED, StageState, Status
from fope_lab.store.writer import (
    AttemptHandle,
    FolderWriter,
    Row,
    durable_rows,
    remove_unfinished_checkpoints,
)


def find_checkpoint(path: str | os.PathLike[str], *, intact: bool = False) -> Path:
    """The final or newest checkpoint of a stage's folder; any other folder is its own.

    Raises StoreError for a stage that is damaged or has none, and, with `intact`, which reads every
    byte, for a checkpoint that no longer holds what was written.
    """
    directory = Path(path)
    if (directory / "checkpoint").is_dir():
        state = StageFolder(directory).state()
        if state.status is Status.DAMAGED:
            raise StoreError(f"{directory}: {state.reason}")
        if state.checkpoint is None:
            done = "is a finished stage without a checkpoint"
            lacks = done if state.is_done else "has no complete checkpoint yet"
            raise StoreError(f"{directory} {lacks}")
        directory = state.checkpoint.path
    if intact:
        require_intact(directory)
    return directory


class StageFolder:
    """Reads a stage's folder, which need not exist. Only `begin` and `set_aside` write."""

    def __init__(self, path: Path, attempts: Attempts | None = None) -> None:
        self.path = path
        self.paths = StagePaths(path)
        self.attempts = attempts or Attempts(path)

    @classmethod
    def of_checkpoint(cls, checkpoint: Path) -> StageFolder | None:
        """The folder of the stage that left a checkpoint, or None if that is not a folder."""
        return cls(checkpoint.parents[1]) if checkpoint.is_dir() else None

    def state(self) -> StageState:
        """The state of the stage, by the store alone."""
        attempt, done = self.attempts.newest(), self.done()
        if done is not None:
            return StageState(Status.DONE, "", self._final_checkpoint(done), attempt)
        checkpoint = newest_complete(self.paths)
        return replace(self._unfinished(attempt), checkpoint=checkpoint, attempt=attempt)

    def is_done(self) -> bool:
        """Whether DONE exists and what it names is whole."""
        return self.done() is not None

    def request(self) -> dict[str, Any] | None:
        """The configuration that was asked for, or None if nobody ever began the stage."""
        try:
            request = yaml.safe_load(self.paths.request.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError, yaml.YAMLError):
            return None
        return request if isinstance(request, dict) else None

    def damage(self) -> list[str]:
        """The files that no longer hold what was written, by their paths; this reads every byte.

        Of a finished stage these are what DONE names, and DONE itself; else files of checkpoints.
        """
        state = self.state()
        if state.status is Status.DAMAGED:
            return self._damaged_output()
        found = [state.checkpoint] if state.is_done else list_checkpoints(self.paths)
        asked = (self.request() or {}).get("key", self.path.name)
        if asked != self.path.name:
            return [f"{self.paths.request.name} (of {asked})"]
        damaged: dict[str, None] = {}
        for checkpoint in filter(None, found):
            names = damage_of_checkpoint(self.paths, checkpoint)
            if checkpoint.path.exists():  # a driver at work removes old ones
                damaged.update(dict.fromkeys(names))
        return list(damaged)

    def result(self) -> dict[str, Any] | None:
        """The result of a finished stage, else None."""
        done = self.done()
        path = None if done is None else result_file(self.paths, done)
        return None if path is None else read_result(path)

    def time_taken(self) -> TimeTaken | None:
        """The time of all attempts at a finished stage since its output was set aside, or None."""
        done = self.done()
        return None if done is None else time_of_done(done)

    def device(self) -> str | None:
        """What the attempt that finished the stage ran on, by the name that its driver gives."""
        ran = (self.done() or {}).get("ran")
        device = ran.get("device") if isinstance(ran, dict) else None
        return None if device is None else str(device)

    def finished_at(self) -> float | None:
        """When the stage was finished, in seconds since the epoch, or None."""
        return (self.done() or {}).get("time")

    def started_at(self) -> float | None:
        """When the first attempt began, in seconds since the epoch, or None."""
        first = self.attempts.record(1)
        started = None if first is None else first.details.get("started")
        return None if started is None else float(started)

    def progress(self) -> dict[str, Any] | None:
        """The latest progress of the newest attempt, or None."""
        progress = read_progress(self.paths.progress)
        newest = progress is not None and progress["token"] == self.attempts.newest_token()
        return progress if newest else None

    def checkpoint(self) -> Checkpoint | None:
        """The final checkpoint of a finished stage, else the newest complete one, else None."""
        done = self.done()
        return newest_complete(self.paths) if done is None else self._final_checkpoint(done)

    def final_checkpoint(self) -> Checkpoint | None:
        """The checkpoint of a finished stage that left one, else None."""
        done = self.done()
        return None if done is None else self._final_checkpoint(done)

    def rows(self) -> list[Row]:
        """The rows in the order of writing; of an unfinished stage, up to its newest checkpoint."""
        done = self.done()
        return durable_rows(self.paths, done, newest_complete(self.paths) if done is None else None)

    def begin(
        self,
        owner: str,
        request: Mapping[str, Any],
        supersede: int | None = None,
        made_by: Mapping[str, Any] | None = None,
        parents: Mapping[str, str] | None = None,
        stop_file: Path | None = None,
    ) -> Attempt:
        """Take the lease and open the stage for writing.

        `owner` names the driver that asks; a retry by the same owner takes over at once.
        `supersede` is the token of an attempt that the caller has watched go stale. `made_by` says
        which code and device do the work, and `parents` has, by role, the digest of what the
        attempt reads of each parent. `stop_file` is where the driver asks the stage to stop. Raises
        LeaseHeldError if another driver holds the lease, and StageDoneError if the stage is
        finished. An error after the lease was taken becomes the failure of the attempt.
        """
        for place in (self.path, self.path.parent):
            if place.exists() and not place.is_dir():
                raise StoreError(f"{place} is a file, and must be a folder; move it away")
        token = self.attempts.next_token(owner, supersede)
        if self.is_done():
            raise StageDoneError(f"{self.path} is finished")
        before = self.attempts.newest()
        resumed = newest_intact(self.paths)
        segments = tuple(resumed.segments()) if resumed else ()
        found = list_checkpoints(self.paths)
        damaged = [c.path.name for c in (found[: found.index(resumed)] if resumed else found)]
        origin = None if resumed is None else {"token": resumed.token, "step": resumed.step}
        self.attempts.take(
            token,
            owner,
            {"host": socket.gethostname(), "pid": os.getpid(), "resumed_from": origin}
            | ({} if made_by is None else {"made_by": dict(made_by)})
            | ({} if parents is None else {"parents": dict(parents)}),
        )
        writer = FolderWriter(AttemptHandle(self.paths, token, resumed, segments, stop_file))
        attempt = Attempt(self.attempts, writer)
        if self.is_done():  # the attempt `supersede` was alive after all
            attempt.release()
            raise StageDoneError(f"{self.path} is finished")
        try:
            paths = self.paths
            files = (paths.request, paths.progress, *paths.results(), paths.done)
            move_aside(paths, [path for path in files if path.is_dir()], token)
            paths.done.unlink(missing_ok=True)  # it names output that is damaged or missing
            text = yaml.safe_dump(dict(request), sort_keys=False, allow_unicode=True)
            write_atomic(self.paths.request, text)
            remove_unfinished_checkpoints(self.paths, before=token)
            if before is not None and before.end is None:
                died = f"attempt {before.token} ended without a word: its process must have died"
                writer.note(died)
            writer.note(f"started by {owner} from step {resumed.step if resumed else 0}")
            for name in damaged:
                writer.note(f"checkpoint {name} is damaged and is not used")
        except Exception as error:
            attempt.fail(error)
            raise
        return attempt

    def set_aside(
        self,
        owner: str,
        reason: str = "",
        supersede: int | None = None,
        finished_by: int | None = None,
    ) -> Path | None:
        """Move all output away, so that the next attempt makes the stage from its start.

        `reason` is recorded, and `supersede` is as for `begin`. With `finished_by`, only the output
        of the attempt with this token is moved. Returns the folder that now has the output, or None
        if there was none. Raises LeaseHeldError if another driver works on the stage.
        """
        if finished_by is not None and finished_by != self.finished_by():
            return None  # somebody else has moved it
        # Checkpoints first: without its checkpoint, a stage is not done.
        written = (self.paths.checkpoints, self.paths.metrics, *self.paths.results())
        output = [path for path in (*written, self.paths.done) if path.exists()]
        if not output:
            return None
        if supersede is None and self.finished_by() == self.attempts.newest_token():
            supersede = self.finished_by()  # it was killed between DONE and the record of its end
        token = self.attempts.next_token(owner, supersede)
        self.attempts.take(token, owner, {"set_aside": reason or "on request"})
        folder = move_aside(self.paths, output, token)
        self.attempts.end(token, Ending.RELEASED)
        return folder

    def finished_by(self) -> int | None:
        """The token of the attempt that wrote DONE, or None if there is no DONE."""
        done = read_done(self.paths.done)
        return None if done is None else int(done["token"])

    def done(self) -> dict[str, Any] | None:
        """The content of DONE if what it names is whole, else None."""
        return completion(self.paths)

    def _final_checkpoint(self, done: Mapping[str, Any]) -> Checkpoint | None:
        name = done["checkpoint"]
        return Checkpoint.parse(self.paths.checkpoints / name) if name else None

    def parents_read(self) -> Mapping[str, str]:
        """The digest of what a finished stage read of each parent, by role; else none."""
        return dict((self.done() or {}).get("parents", {}))

    def parents_of_checkpoint(self) -> Mapping[str, str] | None:
        """The digest of what the newest checkpoint's attempt read of each parent, if known."""
        checkpoint = newest_complete(self.paths)
        record = None if checkpoint is None else self.attempts.record(checkpoint.token)
        return None if record is None else record.details.get("parents")

    def _damaged_output(self) -> list[str]:
        done = read_done(self.paths.done)
        return [self.paths.done.name] if done is None else damage(self.paths, done)

    def _unfinished(self, attempt: AttemptRecord | None) -> StageState:
        """The status of a stage that is not done, and the reason, from its newest attempt."""
        finished = attempt is not None and attempt.ending == Ending.DONE
        # Nothing is damaged if the stage was finished since its attempt was read.
        if (finished or self.paths.done.exists()) and (damaged := self._damaged_output()):
            reason = f"finished earlier, but damaged or missing: {', '.join(damaged)}"
            return StageState(Status.DAMAGED, reason)
        if attempt is None:
            return NOT_STARTED
        if why := attempt.details.get("set_aside"):
            return StageState(Status.NOT_STARTED, f"to be re-run: {why}")
        if attempt.end is None:
            reason = f"started by {attempt.owner}, still marked as running"
            return StageState(Status.RUNNING, reason)
        lines = str(attempt.end.get("error", "")).strip().splitlines()
        if attempt.ending == Ending.FAILED:
            reason = lines[0] if lines else attempt.end.get("type", "no message was recorded")
            return StageState(Status.FAILED, reason)
        progress = self.progress()
        stopped = "no progress was recorded"
        if progress is not None:
            stopped = f"stopped at step {progress['step']} of {progress['total']}"
        return StageState(Status.INTERRUPTED, "; ".join([*lines[:1], stopped]))

    def makers(self) -> list[Mapping[str, Any]]:
        """What made the result, as each attempt behind it recorded, newest first."""
        done = self.done()
        records = [] if done is None else contributors(self.attempts, int(done["token"]))
        return [record.details.get("made_by") or {} for record in records]


def observe(folders: Sequence[StageFolder]) -> list[StageState]:
    """The state of each stage; where a heartbeat stands still for LOOK_SECONDS, it is interrupted.

    A run waits a little longer before it takes such a stage over.
    """
    states = [folder.state() for folder in folders]
    running = [i for i, state in enumerate(states) if state.status is Status.RUNNING]
    before = {i: folders[i].attempts.newest_beat() for i in running}
    if running:
        time.sleep(LOOK_SECONDS)
    for i in running:
        now, state = folders[i].attempts.newest_beat(), folders[i].state()  # it may have ended
        if state.status is Status.RUNNING and now == before[i]:
            patience = patience_with(state.attempt.owner if state.attempt else "")
            reason = (
                f"no heartbeat for {LOOK_SECONDS:g} s; {state.reason};"
                f" another run takes it over after {patience:g} s"
            )
            state = replace(state, status=Status.INTERRUPTED, reason=reason)
        states[i] = state
    return states
