"""Uploads by a thread of this process, which need no second import of MLflow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

from fope_lab.tracking.ledger import recorded_sweeps
from fope_lab.tracking.tracker import Tracker, TrackingThread
from fope_lab.tracking.uploads import Uploads


class UploadsHere(Uploads):
    """As what a run has, which is shown by tests/tracking/test_uploads.py."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def start(self, tracker: Tracker, sweeps: Sequence[str]) -> None:
        self._tracker, self._sweeps = tracker, sweeps

    def flush(self, limit: float | None = None) -> str | None:
        names, tracker = self._sweeps, self._tracker
        assert tracker is not None
        outlines = [one for one in recorded_sweeps(tracker.store) if one.name in names]
        thread = TrackingThread(tracker, outlines)
        thread.start()
        self.last_error = thread.flush(math.inf if limit is None else limit)
        self.unreachable = thread.unreachable
        return self.last_error
