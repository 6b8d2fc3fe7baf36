"""Who may work on a stage: numbered attempts, a heartbeat counter, and an observer's own clock.

An attempt is the file `attempts/<token>.json`, created exclusively, so that of two drivers just one
gets each token, and tokens only grow (they fence: everything an attempt writes carries its token).
The holder counts up in `attempts/<token>.beat`; `attempts/<token>.end` says how it ended. Nobody
compares clocks across machines: an observer calls a lease stale when the counter has not moved for
`LEASE_SECONDS` of the observer's own monotonic clock.
"""

from __future__ import annotations

import contextlib
import enum
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.atomic_files import create_exclusive, read_json, write_atomic, write_json

BEAT_SECONDS = 2.0
LEASE_SECONDS = 16.0


class LeaseHeldError(Exception):
    """Another owner works on this stage."""


class LeaseState(enum.Enum):
    """What an observer may conclude of a stage's newest attempt."""

    FREE = "free"  # none yet, or ended
    HELD = "held"  # its heartbeat moves, or has not been watched for long enough
    STALE = "stale"  # its heartbeat stood still for LEASE_SECONDS


@dataclass(frozen=True)
class AttemptRecord:
    """One try at a stage, as its file tells."""

    token: int
    owner: str
    details: Mapping[str, Any]
    end: Mapping[str, Any] | None


class Attempts:
    """The attempts of one stage folder, as files."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "attempts"

    def newest_token(self) -> int:
        """The largest token given out, 0 if none."""
        return max((int(path.stem) for path in self.path.glob("[0-9]*.json")), default=0)

    def record(self, token: int) -> AttemptRecord | None:
        """The attempt with this token, or None."""
        details = read_json(self._file(token, "json"))
        if details is None:
            return None
        return AttemptRecord(token, details["owner"], details, read_json(self._file(token, "end")))

    def newest(self) -> AttemptRecord | None:
        """The attempt with the largest token, or None."""
        return self.record(self.newest_token())

    def beat(self, token: int) -> int:
        """The heartbeat counter of an attempt, 0 before its first beat."""
        try:
            return int(self._file(token, "beat").read_text())
        except (OSError, ValueError):
            return 0

    def next_token(self, owner: str, supersede: int | None = None) -> int:
        """The token that `owner` may now take: one more than the newest.

        Allowed when the newest attempt has ended, was this owner's own (a retry after a crash), or
        is the token that the caller has watched go stale; raises LeaseHeldError otherwise. What is
        read of the stage between this call and a `take` that succeeds was final when it was read:
        nobody else held a lease in between.
        """
        newest = self.newest()
        if newest is None:
            return 1
        if newest.end is None and newest.owner != owner and newest.token != supersede:
            raise LeaseHeldError(f"{self.path.parent}: attempt {newest.token} by {newest.owner}")
        return newest.token + 1

    def take(self, token: int, owner: str, details: Mapping[str, Any]) -> None:
        """Take the lease with a token from `next_token`.

        Raises LeaseHeldError when another process was quicker.
        """
        record = {"owner": owner, "started": time.time(), **details}
        if not create_exclusive(self._file(token, "json"), json.dumps(record, indent=1)):
            raise LeaseHeldError(f"{self.path.parent}: attempt {token} went to another process")

    def end(self, token: int, outcome: Mapping[str, Any]) -> None:
        """Record how an attempt ended, which frees the lease."""
        write_json(self._file(token, "end"), dict(outcome))

    def write_beat(self, token: int, count: int) -> None:
        """Set the heartbeat counter of an attempt."""
        write_atomic(self._file(token, "beat"), str(count))

    def _file(self, token: int, suffix: str) -> Path:
        return self.path / f"{token:04d}.{suffix}"


class Heartbeat:
    """Counts up in the background for as long as the lease is held."""

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
        """Stop counting."""
        self._stop.set()
        self._thread.join()


class LeaseObserver:
    """Watches the leases of other drivers on this process's monotonic clock."""

    def __init__(
        self, seconds: float = LEASE_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds, self._clock = seconds, clock
        self._seen: dict[Path, tuple[int, int, float]] = {}

    def state(self, attempts: Attempts, owner: str | None = None) -> tuple[LeaseState, int]:
        """(state, newest token); an attempt of `owner` itself counts as free."""
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
        stale = now - since >= self._seconds
        return (LeaseState.STALE if stale else LeaseState.HELD), newest.token
