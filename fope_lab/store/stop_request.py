"""How a driver asks the stages that it runs to stop, on any node: by a file that they look at.

The file is there, and empty, before the first stage begins, and gets a word when the stages are to
stop. Over NFS a node may not see a new file for a minute, but it asks the server for the content of
a file that it opens.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

LOOK_SECONDS = 0.25
"""How often a training looks at the file at most: it does so between two steps."""


class StageStoppedError(Exception):
    """The work of a stage has stopped because its driver asked for it, and can be resumed."""


class StopRequest:
    """The file by which one driver asks its stages to stop."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self) -> None:
        """Write the empty file, which asks for nothing. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(b"")

    def make(self) -> None:
        """Ask all stages of the driver to stop. Raises OSError."""
        self.path.write_bytes(b"stop\n")

    def is_made(self) -> bool:
        """Whether the driver has asked its stages to stop."""
        with contextlib.suppress(OSError):
            return bool(self.path.read_bytes())
        return False


class StopWatch:
    """Looks at a request to stop every `LOOK_SECONDS` at most, however often it is asked."""

    def __init__(self, request: StopRequest, clock: Callable[[], float] = time.monotonic) -> None:
        self._request, self._clock = request, clock
        self._next, self._made = clock(), False

    def is_made(self) -> bool:
        """Whether the stage is asked to stop, as of the last look."""
        now = self._clock()
        if now >= self._next:
            self._next, self._made = now + LOOK_SECONDS, self._request.is_made()
        return self._made
