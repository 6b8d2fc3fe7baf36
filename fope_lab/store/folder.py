"""A stage's folder: what was asked, what is finished, and the lease to work on it."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from fope_lab.atomic_files import read_json, write_atomic
from fope_lab.store.attempt import Attempt
from fope_lab.store.checkpoint import Checkpoint, is_complete, is_intact, parse_checkpoint
from fope_lab.store.lease import Attempts
from fope_lab.store.problems import StageDoneError
from fope_lab.store.row import Row


class StageFolder:
    """Reading a stage's folder; `begin` opens it for writing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kind, self.key = path.parent.name, path.name
        self.attempts = Attempts(path)

    @classmethod
    def of_checkpoint(cls, checkpoint: Path) -> StageFolder | None:
        """The folder of the stage that left a checkpoint; None if `checkpoint` is no folder."""
        return cls(checkpoint.parents[1]) if checkpoint.is_dir() else None

    @property
    def store(self) -> Path:
        """The root folder of the store."""
        return self.path.parents[1]

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
                parse_checkpoint(self.path / "checkpoint" / done["checkpoint"])
                if done["checkpoint"]
                else None
            )
        return next((c for c in self.checkpoints() if is_complete(c.path)), None)

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
        resumed = next((c for c in self.checkpoints() if is_intact(c.path)), None)
        damaged = [c.path.name for c in self.checkpoints() if not is_complete(c.path)]
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
        if done["checkpoint"] and not is_complete(self.path / "checkpoint" / done["checkpoint"]):
            return None
        return dict(done)

    def checkpoints(self) -> list[Checkpoint]:
        """All checkpoint directories, complete or not, newest attempt and step first."""
        found = [parse_checkpoint(p) for p in (self.path / "checkpoint").glob("[0-9]*-[0-9]*")]
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
