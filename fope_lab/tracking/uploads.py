"""Uploads the progress of a run in a process of its own, so that the run's own loop never waits.
It imports MLflow first, which takes 2 s, so `fope-lab run` starts it before it reads the sweeps
and imports Ray, and this module imports little itself.

The process reads what to upload from its standard input, and then a line for each `flush`, which it
answers with a line. When its input ends, also because the run was killed, it uploads what the store
has by then, and ends.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from fope_lab.config.environment import RUN, require_packages
from fope_lab.config.plugins import WithPlugins

if TYPE_CHECKING:
    from fope_lab.tracking.tracker import Tracker

NICENESS = 15
"""As Ray's workers: what they compute comes no later for an upload."""
END_SECONDS = 5.0
"""How long a process that was asked to end may take."""


class Uploads:
    """Uploads in the background what `start` names, until the block ends. What the last flush did
    not send then is left to `sync`.

    While MLflow is down, slow or refuses a request, `last_error` says so as of the last flush;
    `unreachable` says why it can't be used at all.
    """

    def __init__(self) -> None:
        self.last_error: str | None = None
        self.unreachable: str | None = None
        self._tracker: Tracker | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start the process, which imports MLflow at once. Raises MissingPackageError if what runs
        need is not installed."""
        require_packages("running a sweep", RUN)
        command = [sys.executable, "-m", __name__]
        pipe = subprocess.PIPE
        # A session of its own: Ctrl-C is for the run, which waits for the process.
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)
        return self

    def __exit__(self, *error: object) -> None:
        if (process := self._process) is None:
            return
        process.terminate()
        with contextlib.suppress(OSError):
            self._stdin().close()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._output().close()

    def start(self, tracker: Tracker, sweeps: Sequence[str]) -> None:
        """Have the process upload every few seconds what the tracker's store records of the
        sweeps."""
        self._tracker = tracker
        given = (tracker.store.root, tracker.given_uri, tuple(sweeps))
        with contextlib.suppress(OSError):  # it has died: `flush` says so
            # Not as arguments: one may hold a password.
            self._stdin().write(pickle.dumps(WithPlugins(given)))
            self._stdin().flush()

    def flush(self, limit: float | None = None) -> str | None:
        """Upload what the store has now; returns why MLflow is not up to date.

        Waits as long as MLflow shows signs of life, but at most `limit` seconds.
        """
        self.last_error, self.unreachable = self._ask(limit)
        return self.last_error

    def _ask(self, limit: float | None) -> tuple[str | None, str | None]:
        process, output = self._process, self._output()
        assert self._tracker is not None
        with contextlib.suppress(OSError):
            self._stdin().write(b"flush\n")
            self._stdin().flush()
        if not select.select([output], [], [], limit)[0]:
            return self._tracker.silence(), self._tracker.silence()
        if line := output.readline():
            last_error, unreachable = json.loads(line)
            return last_error, unreachable
        assert process is not None
        text = f"the process that uploads to MLflow has died (exit status {process.wait()})"
        return text, text

    def _stdin(self) -> IO[bytes]:
        assert self._process is not None
        assert self._process.stdin is not None
        return self._process.stdin

    def _output(self) -> IO[bytes]:
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout


def main() -> None:
    """Upload what standard input says, until it ends."""
    os.nice(NICENESS)
    gc.disable()  # what the start makes is here to stay: to collect it again and again costs 0.7 s
    from fope_lab.tracking.client import quiet_mlflow
    from fope_lab.tracking.ledger import recorded_sweeps
    from fope_lab.tracking.tracker import Tracker, TrackingThread

    quiet_mlflow()
    try:
        given: WithPlugins[tuple[Path, str | None, tuple[str, ...]]] = pickle.load(sys.stdin.buffer)
    except EOFError:  # the run has ended before its first stage
        return
    root, uri, sweeps = given.value
    tracker = Tracker(root, uri)
    outlines = [one for one in recorded_sweeps(tracker.store) if one.name in sweeps]
    gc.freeze()
    gc.enable()
    asked = True
    while asked:
        thread = TrackingThread(tracker, outlines)
        thread.start()
        asked = bool(sys.stdin.buffer.readline())
        thread.flush()
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps([thread.last_error, thread.unreachable]), flush=True)
    os._exit(0)  # a thread that MLflow does not answer is a daemon, but its connections wait


if __name__ == "__main__":
    main()
