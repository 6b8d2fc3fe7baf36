"""The attempts at a stage: numbered, by one driver each, with how they ended and what they took.

An attempt is the file `attempts/<token>.json`. It is created exclusively, so only one of two
drivers gets a token. Tokens only grow, and everything that an attempt writes carries its token (a
fencing token). How the attempt ended is in `attempts/<token>.end`.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import hashlib
import json
import os
import socket
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.config.atomic_files import create_exclusive, write_atomic
from fope_lab.store.records import LeaseLostError, read_attempt, read_end

BEAT_SECONDS = 2.0
"""How often a heartbeat counter grows."""


def driver_name() -> str:
    """A new name for this process as a driver, the owner of attempts."""
    return f"{socket.gethostname()}-{os.getpid()}-{_processes()}{uuid.uuid4().hex[:6]}"


@dataclass(frozen=True)
class DriverProcess:
    """The process that a driver's name gives; `is_here`: whether this process could see it."""

    host: str
    pid: int
    is_here: bool

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def process_of(driver: str) -> DriverProcess | None:
    """The process of a driver, or None if the name gives none."""
    place, _, random = driver.rpartition("-")
    host, _, pid = place.rpartition("-")
    if not host or not pid.isdigit():
        return None
    is_here = host == socket.gethostname() and random[:4] == _processes()
    return DriverProcess(host, int(pid), is_here)


def is_gone(driver: str) -> bool:
    """Whether a driver ran on this machine and its process has ended; False if nobody can tell."""
    process = process_of(driver)
    if process is None or not process.is_here:
        return False
    with contextlib.suppress(OSError, OverflowError):  # somebody else's process
        try:
            os.kill(process.pid, 0)
        except ProcessLookupError:
            return True
    return False


def _processes() -> str:
    """Four digits for the processes that this one sees: containers may share a host name."""
    with contextlib.suppress(OSError):
        return hashlib.sha256(os.readlink("/proc/self/ns/pid").encode()).hexdigest()[:4]
    return "0000"


_TRACES = ("attempts/*", "metrics/*", "checkpoint/*", "set-aside/*")
"""Where the names of a stage's files begin with the four digits of a token."""


class LeaseHeldError(Exception):
    """Another driver holds the lease of this stage."""


class Ending(enum.StrEnum):
    """The words that an attempt's record has for its end."""

    DONE = "done"  # it finished the stage
    FAILED = "failed"  # an error ended it, or its process died too often
    RELEASED = "released"  # it gave the stage back before it was finished
    INTERRUPTED = "interrupted"  # its run was interrupted, or it lost workers and is tried again


@dataclass(frozen=True)
class AttemptRecord:
    """One attempt at a stage, as its files record it; `end` is None until it has ended."""

    token: int
    owner: str
    details: Mapping[str, Any]
    end: Mapping[str, Any] | None

    @property
    def ending(self) -> str | None:
        """How the attempt ended, as an `Ending`, or None until it has."""
        return None if self.end is None else self.end.get("outcome")


class Attempts:
    """The files that record the attempts at one stage."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._place = os.path.join(folder, "attempts")  # thousands are made: a Path takes longer

    @property
    def path(self) -> Path:
        """The folder with their files."""
        return Path(self._place)

    def newest_token(self) -> int:
        """The largest token that was taken, or 0."""
        try:
            names = os.listdir(self._place)
        except OSError:
            return 0
        tokens = (name.removesuffix(".json") for name in names if name.endswith(".json"))
        return max((int(token) for token in tokens if token.isdigit()), default=0)

    def record(self, token: int) -> AttemptRecord | None:
        """The attempt with this token, or None if there is none."""
        path = os.path.join(self._place, f"{token:04d}")
        details = read_attempt(f"{path}.json")
        if details is None:
            if not os.path.exists(f"{path}.json"):
                return None
            details = {"owner": "an attempt whose record is damaged"}  # perhaps still at work
        return AttemptRecord(token, details["owner"], details, read_end(f"{path}.end"))

    def newest(self) -> AttemptRecord | None:
        """The attempt with the largest token, or None if there is none."""
        return self.record(self.newest_token())

    def any_failed(self) -> bool:
        """Whether any attempt ended with an error."""
        records = (self.record(token) for token in range(1, self.newest_token() + 1))
        return any(one is not None and one.ending == Ending.FAILED for one in records)

    def beat(self, token: int) -> int:
        """The heartbeat counter of an attempt, or 0 before its first beat."""
        try:
            return int(self._file(token, "beat").read_text())
        except (OSError, ValueError):
            return 0

    def newest_beat(self) -> tuple[int, int]:
        """The largest token that was taken, and its heartbeat counter."""
        token = self.newest_token()
        return token, self.beat(token)

    def next_token(self, owner: str, supersede: int | None = None) -> int:
        """The token that `owner` may take now: above every one that left a trace.

        The newest attempt must have ended, belong to the same owner (a retry after a crash), or
        have the token `supersede`, which the caller has watched go stale; else this raises
        LeaseHeldError. What the caller reads of the stage between this and a successful `take` is
        final, unless the attempt `supersede` is alive after all.
        """
        trace = self._newest_trace()  # before the newest attempt, which may be just beginning
        newest = self.newest()
        if newest is None:
            return trace + 1
        if newest.end is None and newest.owner != owner and newest.token != supersede:
            raise LeaseHeldError(f"{self.folder}: attempt {newest.token} by {newest.owner}")
        return max(newest.token, trace) + 1

    def take(self, token: int, owner: str, details: Mapping[str, Any]) -> None:
        """Take the lease with a token from `next_token`; raises LeaseHeldError if somebody has."""
        record = {"owner": owner, "started": time.time(), **details}
        if not create_exclusive(self._file(token, "json"), json.dumps(record, indent=1)):
            raise LeaseHeldError(f"{self.folder}: attempt {token} went to another process")

    def require_newest(self, token: int) -> None:
        """Raises LeaseLostError if there is an attempt newer than `token`."""
        newest = self.newest_token()
        if newest != token:
            raise LeaseLostError(
                f"{self.folder}: attempt {token} was superseded by attempt {newest}"
            )

    def end(self, token: int, ending: Ending, **details: Any) -> None:
        """Record how an attempt ended, which frees its lease. The first to say so is believed."""
        record = {"outcome": str(ending), "time": time.time(), **details}
        create_exclusive(self._file(token, "end"), json.dumps(record, indent=1, ensure_ascii=False))

    def write_beat(self, token: int, count: int) -> None:
        """Set the heartbeat counter of an attempt."""
        write_atomic(self._file(token, "beat"), str(count))

    def _newest_trace(self) -> int:
        """The largest token that any file of the stage has, even if its attempt was removed."""
        names = (path.name[:4] for part in _TRACES for path in self.folder.glob(part))
        return max((int(name) for name in names if name.isdigit()), default=0)

    def _file(self, token: int, suffix: str) -> Path:
        return self.path / f"{token:04d}.{suffix}"


class AttemptsReading(Attempts):
    """The attempts at one moment: each is read once, and its heartbeat each time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._records: dict[int, AttemptRecord | None] = {}

    def newest_token(self) -> int:
        """The largest token that was taken at that moment, or 0."""
        return self._newest

    def record(self, token: int) -> AttemptRecord | None:
        """The attempt with this token as it was at that moment, or None if there was none."""
        if token not in self._records:
            self._records[token] = super().record(token)
        return self._records[token]

    @functools.cached_property
    def _newest(self) -> int:
        return super().newest_token()


def contributors(attempts: Attempts, token: int) -> list[AttemptRecord]:
    """The attempt `token`, the attempt whose checkpoint it resumed from, and so on, as recorded."""
    found: list[AttemptRecord] = []
    while token and (record := attempts.record(token)) is not None:
        found.append(record)
        origin: Any = record.details.get("resumed_from")
        token = origin["token"] if origin and origin["token"] < token else 0
    return found


def device_of(record: AttemptRecord) -> str | None:
    """The device that an attempt recorded, or None if it recorded none."""
    device = (record.details.get("made_by") or {}).get("device")
    return None if device is None else str(device)


@dataclass(frozen=True)
class TimeTaken:
    """The wall time of attempts at a stage, in seconds, and their number."""

    seconds: float
    attempts: int


@dataclass(frozen=True)
class WorkTime:
    """The wall time of work, and the processor time of the process that writes its checkpoints."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def __add__(self, other: WorkTime) -> WorkTime:
        return WorkTime(self.seconds + other.seconds, self.cpu_seconds + other.cpu_seconds)


class Stopwatch:
    """Measures the wall time and this process's processor time since it was made."""

    def __init__(self) -> None:
        self._started, self._started_cpu = time.monotonic(), time.process_time()

    def read(self) -> WorkTime:
        return WorkTime(time.monotonic() - self._started, time.process_time() - self._started_cpu)


def over_attempts(duration: str, attempts: int | None) -> str:
    """A duration with the attempts, if there were several, as in "12 s over 3 attempts"."""
    return f"{duration} over {attempts} attempts" if attempts and attempts > 1 else duration


def time_of_done(done: Mapping[str, Any]) -> TimeTaken:
    """The time of all attempts at a finished stage, from DONE."""
    earlier = done["earlier"]
    return TimeTaken(done["seconds"] + earlier["seconds"], 1 + earlier["attempts"])


def time_before(attempts: Attempts, token: int) -> TimeTaken:
    """The time of the attempts before `token`, back to the last one that set the output aside."""
    seconds, number = 0.0, 0
    for earlier in range(token - 1, 0, -1):
        record = attempts.record(earlier)
        if record is None:
            continue
        if "set_aside" in record.details:
            break
        seconds, number = seconds + attempt_seconds(attempts, record), number + 1
    return TimeTaken(seconds, number)


def attempt_seconds(attempts: Attempts, record: AttemptRecord) -> float:
    """The seconds that an attempt recorded; one at work or dead lived until its last heartbeat."""
    told = (record.end or {}).get("seconds")
    return max(attempts.beat(record.token) - 1, 0) * BEAT_SECONDS if told is None else float(told)
