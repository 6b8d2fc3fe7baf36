"""Where a stage is in a run."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Phase(enum.Enum):
    """Where a stage is in a run."""

    WAITING = "waiting"  # for its parents, or for a free slot
    ELSEWHERE = "elsewhere"  # another driver works on it
    STARTED = "started"  # handed to Tune
    DONE = "done"
    FAILED = "failed"
    BLOCKED = "blocked"  # an ancestor failed


ENDED = (Phase.DONE, Phase.FAILED, Phase.BLOCKED)


@dataclass(frozen=True)
class StageStatus:
    """A stage's phase in a run, and why it is not done if it never will be."""

    phase: Phase
    cached: bool = False
    reason: str = ""
