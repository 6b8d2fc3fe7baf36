"""Who may work on a stage: numbered attempts, a heartbeat counter, and an observer's own clock.

An attempt is the file `attempts/<token>.json`. It is created exclusively, so only one of two
drivers gets a token. Tokens only grow, and everything that an attempt writes carries its token (a
fencing token). The process that works on the stage increments the counter in
`attempts/<token>.beat`. How the attempt ended is in `attempts/<token>.end`. Clocks of different
machines are never compared: an observer calls a lease stale when the counter has not moved for
`LEASE_SECONDS` of its own monotonic clock, or for `DEAD_SECONDS` if the driver was a process of
this machine that has ended.

The owner of an attempt is the driver, the process of `fope-lab run`. The heartbeat comes from the
trial that works on the stage, on any node. If the driver is killed, Ray ends its trials, the
counter stands still, and another driver may take the stage after `LEASE_SECONDS`.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import hashlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.atomic_files import create_exclusive, write_atomic
from fope_lab.store.problems import LeaseLostError
from fope_lab.store.records import read_attempt, read_end

BEAT_SECONDS = 2.0
"""How often a heartbeat counter grows."""
LOOK_SECONDS = 1.5 * BEAT_SECONDS
"""How long a look at a counter takes: if it stands still for so long, it is probably dead."""
LEASE_SECONDS = 16.0
"""How long a counter must stand still before another driver takes the stage."""
DEAD_SECONDS = 5.0
"""How long it must stand still if the driver is known to be dead: more than two beats, so that a
trial that outlives its driver for a moment is not taken for dead."""


def driver_name() -> str:
    """A new name for this process as a driver, the owner of attempts."""
    return f"{socket.gethostname()}-{os.getpid()}-{_processes()}{uuid.uuid4().hex[:6]}"


@dataclass(frozen=True)
class DriverProcess:
    """The process that a driver's name tells; `is_here` says whether this process could see it."""

    host: str
    pid: int
    is_here: bool

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def process_of(driver: str) -> DriverProcess | None:
    """The process of a driver, or None for a name that tells none."""
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
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # somebody else's process
        return False
    return False


def patience_with(driver: str, seconds: float = LEASE_SECONDS) -> float:
    """How long the heartbeat of a driver's stage must stand still before another takes the stage;
    `seconds` if the driver may still be alive."""
    return min(seconds, DEAD_SECONDS) if is_gone(driver) else seconds


def _processes() -> str:
    """Four digits for the processes that this one sees: containers may have one host name, and the
    same numbers for different processes."""
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


class LeaseState(enum.Enum):
    """What an observer may conclude about the newest attempt at a stage."""

    FREE = "free"  # there is no attempt, or it has ended
    HELD = "held"  # its heartbeat moves, or has not been watched for long enough
    STALE = "stale"  # its heartbeat has stood still for LEASE_SECONDS


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
        self.path = folder / "attempts"

    def newest_token(self) -> int:
        """The largest token that was taken, or 0."""
        try:
            names = os.listdir(self.path)
        except OSError:
            return 0
        tokens = (name.removesuffix(".json") for name in names if name.endswith(".json"))
        return max((int(token) for token in tokens if token.isdigit()), default=0)

    def record(self, token: int) -> AttemptRecord | None:
        """The attempt with this token, or None if there is none."""
        path = self._file(token, "json")
        details = read_attempt(path)
        if details is None and path.exists():  # somebody's, perhaps still at work
            details = {"owner": "an attempt whose record is damaged"}
        if details is None:
            return None
        return AttemptRecord(token, details["owner"], details, read_end(self._file(token, "end")))

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
        have the token `supersede`, which the caller has watched go stale. Otherwise this raises
        LeaseHeldError. Whatever the caller reads of the stage between this call and a successful
        `take` is final, since nobody else held the lease in between, unless the process of the
        attempt `supersede` is alive after all.
        """
        trace = self._newest_trace()  # before the newest attempt, which may be just beginning
        newest = self.newest()
        if newest is None:
            return trace + 1
        if newest.end is None and newest.owner != owner and newest.token != supersede:
            raise LeaseHeldError(f"{self.path.parent}: attempt {newest.token} by {newest.owner}")
        return max(newest.token, trace) + 1

    def take(self, token: int, owner: str, details: Mapping[str, Any]) -> None:
        """Take the lease with a token from `next_token`.

        Raises LeaseHeldError if another process took the token first.
        """
        record = {"owner": owner, "started": time.time(), **details}
        if not create_exclusive(self._file(token, "json"), json.dumps(record, indent=1)):
            raise LeaseHeldError(f"{self.path.parent}: attempt {token} went to another process")

    def require_newest(self, token: int) -> None:
        """Raises LeaseLostError if there is an attempt newer than `token`."""
        newest = self.newest_token()
        if newest != token:
            raise LeaseLostError(
                f"{self.path.parent}: attempt {token} was superseded by attempt {newest}"
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
        names = (path.name[:4] for part in _TRACES for path in self.path.parent.glob(part))
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


class Heartbeat:
    """Increments an attempt's counter in the background until `stop`."""

    def __init__(self, attempts: Attempts, token: int, seconds: float = BEAT_SECONDS) -> None:
        self._attempts, self._token, self._seconds = attempts, token, seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fope-lab-heartbeat", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        count = 0
        while True:
            count += 1
            with contextlib.suppress(OSError):  # a full disk: the lease goes stale, as it should
                self._attempts.write_beat(self._token, count)
            if self._stop.wait(self._seconds):
                return

    def stop(self) -> None:
        """Stop counting and wait for the thread to end."""
        self._stop.set()
        self._thread.join()


class Lease:
    """The right to work on a stage, kept alive by a heartbeat until `end`."""

    def __init__(self, attempts: Attempts, token: int) -> None:
        self.attempts, self.token = attempts, token
        self.heartbeat = Heartbeat(attempts, token)

    def require(self) -> None:
        """Raises LeaseLostError if a newer attempt has taken the lease."""
        self.attempts.require_newest(self.token)

    def end(self, ending: Ending, **details: Any) -> None:
        """Record how the attempt ended, which frees the lease."""
        self.heartbeat.stop()
        # A full disk must not hide the error that is being reported. The lease then goes stale.
        with contextlib.suppress(OSError):
            self.attempts.end(self.token, ending, **details)


class LeaseObserver:
    """Watches the leases of other drivers by this process's monotonic clock."""

    def __init__(
        self, seconds: float = LEASE_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds, self._clock = seconds, clock
        self._seen: dict[Path, tuple[int, int, float]] = {}

    def state(self, attempts: Attempts, owner: str | None = None) -> tuple[LeaseState, int]:
        """The lease's state and the newest token; an attempt by `owner` itself counts as free."""
        newest = attempts.newest()
        if newest is None:
            return LeaseState.FREE, 0
        if newest.end is not None or newest.owner == owner:
            self._seen.pop(attempts.path, None)
            return LeaseState.FREE, newest.token
        now, beat = self._clock(), attempts.beat(newest.token)
        token_then, beat_then, since = self._seen.get(attempts.path, (0, -1, now))
        if (newest.token, beat) != (token_then, beat_then):
            self._seen[attempts.path] = (newest.token, beat, now)
            return LeaseState.HELD, newest.token
        stale = now - since >= patience_with(newest.owner, self._seconds)
        return (LeaseState.STALE if stale else LeaseState.HELD), newest.token
