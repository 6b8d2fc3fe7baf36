"""Locks between processes, each on a file of its own; they end with the process that holds them."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from fope_lab.tracking.errors import TrackingError

LOCK_SECONDS = 8.0
"""How long to wait for another process that holds a lock."""


@contextlib.contextmanager
def locked(
    path: Path, busy: TrackingError, progress: Callable[[], object] = lambda: None
) -> Iterator[BinaryIO]:
    """Hold the lock on the file `path`, and yield the file.

    Raises the error `busy` if another holds the lock for LOCK_SECONDS, counted
    again from each change of what `progress` returns.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        seen, deadline = progress(), time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if (now := progress()) != seen:
                    seen, deadline = now, time.monotonic() + LOCK_SECONDS
                if time.monotonic() > deadline:
                    raise busy from None
                time.sleep(0.05)
        yield file
