"""How long a stage took: all its attempts together, and the work that a checkpoint holds.

All attempts together are what a stage cost. The work that a checkpoint holds took less time: what
an attempt did after its last checkpoint is lost, and the next attempt does it again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fope_lab.store.lease import BEAT_SECONDS, AttemptRecord, Attempts


@dataclass(frozen=True)
class TimeTaken:
    """The wall time of attempts at a stage, in seconds, and their number."""

    seconds: float
    attempts: int


@dataclass(frozen=True)
class WorkTime:
    """The wall time and the processor time of work, in seconds.

    The processor time is that of one process, which writes the checkpoints.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def __add__(self, other: WorkTime) -> WorkTime:
        return WorkTime(self.seconds + other.seconds, self.cpu_seconds + other.cpu_seconds)


class Stopwatch:
    """Measures the wall time and this process's processor time since it was made."""

    def __init__(self) -> None:
        self._started, self._started_cpu = time.monotonic(), time.process_time()

    def read(self) -> WorkTime:
        """The time since the stopwatch was made."""
        return WorkTime(time.monotonic() - self._started, time.process_time() - self._started_cpu)


def over_attempts(duration: str, attempts: int | None) -> str:
    """A duration in words with the attempts, if there were several, as in "12 s over 3 attempts".

    `attempts` is None if nobody knows the number.
    """
    return f"{duration} over {attempts} attempts" if attempts and attempts > 1 else duration


def time_of_done(done: Mapping[str, Any]) -> TimeTaken:
    """The time of all attempts at a finished stage, from DONE.

    If an old version wrote DONE, that is the time of the attempt that finished the stage.
    """
    earlier = done.get("earlier", {"seconds": 0.0, "attempts": 0})
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
    """The wall time of an attempt, in seconds.

    An attempt that recorded none, since it is at work, has died, or is of an old version, lived at
    least until its last heartbeat.
    """
    told = (record.end or {}).get("seconds")
    return max(attempts.beat(record.token) - 1, 0) * BEAT_SECONDS if told is None else float(told)
