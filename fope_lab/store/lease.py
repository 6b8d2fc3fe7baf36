"""Who works on a stage now: heartbeats, those who watch them, and requests to stop.

The owner of an attempt is the driver, the process of `fope-lab run`. The trial that works on the
stage, on any node, increments the counter in `attempts/<token>.beat`. Clocks of different machines
are never compared: an observer calls a lease stale when the counter has not moved for
`LEASE_SECONDS` of its own monotonic clock, or for `DEAD_SECONDS` if the driver was a process of
this machine that has ended. Then another driver may take the stage.
"""

from __future__ import annotations

import contextlib
import enum
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fope_lab.store.attempts import BEAT_SECONDS, Attempts, is_gone
from fope_lab.store.records import StagePaths, read_progress

LOOK_SECONDS = 1.5 * BEAT_SECONDS
"""How long a look at a counter takes."""
LEASE_SECONDS = 16.0
"""How long a counter must stand still before another driver takes the stage."""
DEAD_SECONDS = 5.0
"""The same if the driver is known to be dead: more than two beats, as trials may outlive it."""
STOP_LOOK_SECONDS = 0.25
"""How often a training looks at the request to stop at most: it does so between two steps."""


class StageStoppedError(Exception):
    """The work of a stage has stopped because its driver asked for it, and can be resumed."""


class StopRequest:
    """The file by which one driver asks its stages, on any node, to stop.

    It exists, empty, before the first stage begins: over NFS a node may not see a new file for a
    minute, but it asks the server for the content of a file that it opens.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self) -> None:
        """Write the empty file, which asks for nothing. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(b"")

    def make(self) -> None:
        """Ask all stages of the driver to stop. Raises OSError."""
        self.path.write_bytes(b"stop\n")

    def is_made(self) -> bool:
        """Whether the driver has asked its stages to stop."""
        with contextlib.suppress(OSError):
            return bool(self.path.read_bytes())
        return False


class StopWatch:
    """Looks at a request to stop every `STOP_LOOK_SECONDS` at most, however often it is asked."""

    def __init__(self, request: StopRequest, clock: Callable[[], float] = time.monotonic) -> None:
        self._request, self._clock = request, clock
        self._next, self._made = clock(), False

    def is_made(self) -> bool:
        """Whether the stage is asked to stop, as of the last look."""
        now = self._clock()
        if now >= self._next:
            self._next, self._made = now + STOP_LOOK_SECONDS, self._request.is_made()
        return self._made


def patience_with(driver: str, seconds: float = LEASE_SECONDS) -> float:
    """How long the heartbeat of a driver's stage must stand still for another to take it."""
    return min(seconds, DEAD_SECONDS) if is_gone(driver) else seconds


class LeaseState(enum.Enum):
    """What an observer may conclude about the newest attempt at a stage."""

    FREE = "free"  # there is no attempt, or it has ended
    HELD = "held"  # its heartbeat moves, or has not been watched for long enough
    STALE = "stale"  # its heartbeat has stood still for LEASE_SECONDS


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
            self._seen.pop(attempts.folder, None)
            return LeaseState.FREE, newest.token
        now, beat = self._clock(), attempts.beat(newest.token)
        token_then, beat_then, since = self._seen.get(attempts.folder, (0, -1, now))
        if (newest.token, beat) != (token_then, beat_then):
            self._seen[attempts.folder] = (newest.token, beat, now)
            return LeaseState.HELD, newest.token
        stale = now - since >= patience_with(newest.owner, self._seconds)
        return (LeaseState.STALE if stale else LeaseState.HELD), newest.token


class SignsOfLife:
    """Watches what stages tell of their progress, by this process's monotonic clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[Path, tuple[object, float]] = {}

    def silent_for(self, paths: StagePaths, attempts: Attempts) -> float:
        """For how many seconds a stage has neither begun an attempt nor told of progress, as far as
        this has been asked."""
        told, now = (attempts.newest_token(), read_progress(paths.progress)), self._clock()
        before, since = self._seen.get(paths.folder, (None, now))
        if told != before:
            self._seen[paths.folder] = told, now
            return 0.0
        return now - since

    def forget(self, paths: StagePaths) -> None:
        """Forget a stage, which may begin again later."""
        self._seen.pop(paths.folder, None)
