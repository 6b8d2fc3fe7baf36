"""The phases of a stage during a run."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Phase(enum.Enum):
    """The phase that a stage is in during a run."""

    WAITING = "waiting"  # it waits for its parents or for a free slot
    ELSEWHERE = "elsewhere"  # another driver is working on it
    STARTED = "started"  # Tune has it
    DONE = "done"
    FAILED = "failed"
    BLOCKED = "blocked"  # an ancestor failed


ENDED = (Phase.DONE, Phase.FAILED, Phase.BLOCKED)


@dataclass(frozen=True)
class StageStatus:
    """A stage's phase in a run; `reason` says why a failed or blocked stage can't be done."""

    phase: Phase
    cached: bool = False
    reason: str = ""
