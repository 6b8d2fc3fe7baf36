"""A thread that keeps MLflow up to date during a run, and never disturbs the run."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from fope_lab.store.problems import first_line
from fope_lab.sweep.plan import Plan
from fope_lab.tracking.tracker import Tracker

LONGEST_PAUSE = 60.0
"""Seconds between two attempts while MLflow keeps failing."""


class TrackingThread:
    """Uploads the progress of `plans` every `seconds` in the background.

    While MLflow is down, slow or refuses a request, `last_error` says so and the pauses grow up to
    a minute. Start the thread after ray is imported: two threads that import the same module at the
    same time can see it half initialized.
    """

    def __init__(self, tracker: Tracker, plans: Sequence[Plan], seconds: float = 5.0) -> None:
        self.last_error: str | None = None
        self._tracker, self._plans, self._seconds = tracker, tuple(plans), seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fope-lab-tracking", daemon=True)

    def start(self) -> None:
        """Start the thread, which uploads in the background."""
        self._thread.start()

    def flush(self, timeout: float) -> str | None:
        """Upload what the store has now and end the thread; returns why MLflow is not up to date.

        Returns None if it is. Waits for at most `timeout` seconds: an upload that is still running
        then ends with the process, and `sync` completes it.
        """
        self._stopping.set()
        self._thread.join(timeout)
        if self._thread.is_alive():
            return f"MLflow at {self._tracker.address} did not finish within {timeout:g} s"
        return self.last_error

    def _run(self) -> None:
        failures = 0
        while True:
            last = self._stopping.is_set()
            problems: list[str] = []
            for plan in self._plans:
                try:
                    self._tracker.project(plan)
                except Exception as error:  # tracking must never stop the training
                    problems.append(str(error) or first_line(error))
            self.last_error = "\n".join(dict.fromkeys(problems)) or None
            if last:
                return
            failures = failures + 1 if problems else 0
            self._stopping.wait(min(self._seconds * 2**failures, LONGEST_PAUSE))
