"""The state of a stage, in the words that every part of the project shows."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from fope_lab.store.attempts import AttemptRecord
from fope_lab.store.checkpoint import Checkpoint


class Status(enum.StrEnum):
    """Where a stage stands. The store tells the first six, the graph the next two, and a rule that
    adds seeds to a sweep the last two."""

    DONE = "done"  # finished, and its output is whole
    FAILED = "failed"  # its newest attempt ended with an error
    RUNNING = "running"  # its newest attempt has not ended, though its process may have died
    INTERRUPTED = "interrupted"  # its newest attempt ended early, without an error
    DAMAGED = "damaged"  # finished, but its output is damaged, or a parent's is another by now
    NOT_STARTED = "not started"  # there was no attempt
    WAITING = "waiting"  # a run will start it, once its parents are done and there is room
    BLOCKED = "blocked"  # it can't start: an ancestor failed, or something that it needs is missing
    IF_NEEDED = "if needed"  # a run starts it only if its seed turns out to be needed
    NOT_NEEDED = "not needed"  # its seed turned out not to be needed


IMPORTANCE = (
    Status.FAILED,
    Status.RUNNING,
    Status.DAMAGED,
    Status.INTERRUPTED,
    Status.WAITING,
    Status.NOT_STARTED,
    Status.BLOCKED,
    Status.IF_NEEDED,
    Status.NOT_NEEDED,
    Status.DONE,
)
"""The statuses in the order in which people want to know of them."""
UNNEEDED = (Status.IF_NEEDED, Status.NOT_NEEDED)
"""The statuses of a stage that a run does not start, as far as is known by now."""
ENDED = (Status.DONE, Status.FAILED, Status.BLOCKED, *UNNEEDED)
"""The statuses with which a run is done with a stage."""


@dataclass(frozen=True)
class StageState:
    """The status of a stage, why it has this status, and what there is to resume from."""

    status: Status
    reason: str = ""
    """Why it has this status, in one line for people, such as the first line of the error."""
    checkpoint: Checkpoint | None = None
    """The final checkpoint of a finished stage, else the newest complete one."""
    attempt: AttemptRecord | None = None
    """The newest attempt at the stage, or None if nobody began it."""
    elsewhere: bool = False
    """Whether another driver runs the stage, as far as a run can tell."""

    @property
    def is_done(self) -> bool:
        """Whether the stage is finished and its output is whole."""
        return self.status is Status.DONE

    @property
    def is_unneeded(self) -> bool:
        """Whether a run leaves the stage out, as far as is known by now."""
        return self.status in UNNEEDED


NOT_STARTED = StageState(Status.NOT_STARTED, "not in the store")
"""The state of a stage that nobody began."""
CACHED = StageState(Status.DONE, "cached")
"""The state, in a run, of a stage that the store had before."""
