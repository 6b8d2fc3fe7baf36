"""Uploads in the background, which never disturb a run and end when MLflow is silent."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from fope_lab.sweep.plan import Plan
from fope_lab.tracking.causes import as_tracking_error
from fope_lab.tracking.errors import TrackingError, UnreachableError
from fope_lab.tracking.quiet_mlflow import quiet_mlflow
from fope_lab.tracking.tracker import Tracker

LONGEST_PAUSE = 60.0
"""Seconds between two attempts while MLflow keeps failing."""


class TrackingThread:
    """Uploads the progress of `plans` every `seconds` in the background.

    While MLflow is down, slow or refuses a request, `last_error` says so and the pauses grow up to
    a minute. `unreachable` says why MLflow can't be used at all, if it can't. Start the thread
    after ray is imported: two threads that import the same package at the same time can see a
    module half initialized, or wait for each other.
    """

    def __init__(self, tracker: Tracker, plans: Sequence[Plan], seconds: float = 5.0) -> None:
        self.last_error: str | None = None
        self.unreachable: str | None = None
        self._tracker, self._plans, self._seconds = tracker, tuple(plans), seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fope-lab-tracking", daemon=True)

    def start(self) -> None:
        """Import MLflow, which takes 2 s, and start the thread, which uploads in the background."""
        quiet_mlflow()  # here, not in the thread: Ray Tune imports it on the main thread, too
        self._thread.start()

    def flush(self, limit: float | None = None) -> str | None:
        """Upload what the store has now and end the thread; returns why MLflow is not up to date.

        Returns None if it is. Waits as long as MLflow shows signs of life, but at most `limit`
        seconds if it is given. What is still running then ends with the process, and `sync`
        completes it.
        """
        self._stopping.set()
        if self._tracker.patience.wait(self._thread, limit):
            return self.last_error
        self.unreachable = self.last_error = self._tracker.silence()
        return self.last_error

    def _run(self) -> None:
        failures = 0
        while True:
            last = self._stopping.is_set()
            problems = self._upload()
            self.last_error = "\n".join(dict.fromkeys(problems)) or None
            if last or (self.unreachable and self._stopping.is_set()):
                return
            failures = failures + 1 if problems else 0
            self._stopping.wait(min(self._seconds * 2**failures, LONGEST_PAUSE))

    def _upload(self) -> list[str]:
        problems: list[str] = []
        self.unreachable = None
        for plan in self._plans:
            try:
                self._tracker.project(plan)
            except UnreachableError as error:
                self.unreachable = str(error)
                return [self.unreachable]
            except Exception as error:  # tracking must never stop the training
                problems.append(str(as_tracking_error(error, self._tracker.uri)))
        return problems


def sync(tracker: Tracker) -> list[str]:
    """Bring every sweep of the tracker's store up to date; returns their names.

    Waits as long as MLflow shows signs of life. Raises TrackingError if something is not up to
    date.
    """
    names: list[str] = []
    errors: list[TrackingError] = []

    def work() -> None:
        try:
            names.extend(tracker.sync())
        except Exception as error:
            errors.append(as_tracking_error(error, tracker.uri))

    thread = threading.Thread(target=work, name="fope-lab-sync", daemon=True)
    thread.start()
    if not tracker.patience.wait(thread):
        raise UnreachableError(tracker.silence())
    if errors:
        raise errors[0]
    return names
