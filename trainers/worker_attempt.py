"""An attempt at a stage as its workers see it: the trial that started them holds the lease.

Worker 0 writes under the attempt's own token, as the trial itself would; the others write nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from fope_lab.store import Attempt, Checkpoint, StageFolder


@dataclass(frozen=True)
class Loan:
    """What a worker needs to know of an attempt, wherever the worker runs."""

    folder: Path
    token: int
    resumed_from: Checkpoint | None

    @classmethod
    def of(cls, attempt: Attempt) -> Loan:
        """Of the attempt that holds the lease."""
        return cls(attempt.folder.path, attempt.token, attempt.resumed_from)

    def open(self, rank: int) -> LentAttempt:
        """The attempt for worker number `rank`."""
        kind = LentAttempt if rank == 0 else SilentAttempt
        return kind(StageFolder(self.folder), self.token, self.resumed_from)


class LentAttempt(Attempt):
    """Writes metrics, progress and checkpoints; who holds the lease keeps it alive and ends it.

    Once the holder has begun another attempt, checkpoints are refused (store.LeaseLostError).
    """

    def __post_init__(self) -> None:
        self._segment_step = self.resumed_from.step if self.resumed_from else 0
        self._newest = self.resumed_from

    @property
    def newest(self) -> Checkpoint | None:
        """The last checkpoint: for the holder's `saved_by_worker`."""
        return self._newest

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close_segment()


class SilentAttempt(LentAttempt):
    """Writes nothing, and knows what the one that does has written."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Nothing."""

    def progress(self, step: int, total: int, **values: float | str) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def save_checkpoint(self, step: int, write: Callable[[Path], None]) -> Checkpoint:
        """Where worker 0 writes it."""
        name = f"{self.token:04d}-{step:09d}"
        return Checkpoint(self.folder.path / "checkpoint" / name, self.token, step)
