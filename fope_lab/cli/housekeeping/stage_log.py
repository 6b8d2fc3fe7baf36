"""The log of a stage: what its attempts noted, which `log.txt` has one after the other."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from fope_lab.cli.housekeeping.contents import moment, state_since
from fope_lab.store.attempts import AttemptRecord
from fope_lab.store.folder import StageFolder, observe
from fope_lab.store.lease import LeaseObserver, LeaseState
from fope_lab.store.records import StoreError
from fope_lab.store.state import Status

POLL_SECONDS = 0.5
"""How often a log that is followed is looked at."""
_ENTRY = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ \[(\d+)\] ")
"""How the first line of an entry begins; the number is the attempt's."""


class StageLog:
    """Reads the log of a stage: of its newest attempt and what follows, or of every attempt.

    `title` names the stage. Raises StoreError if the stage has no log.
    """

    def __init__(self, folder: StageFolder, title: str, *, every_attempt: bool = False) -> None:
        self._folder, self._title = folder, title
        if not folder.paths.log.is_file():
            state = folder.state()
            raise StoreError(f"{title} has no log: {state.status} ({state.reason})")
        newest = self._newest_at_work()
        self._token = 0 if newest is None or every_attempt else newest.token
        self._offset, self._is_wanted = 0, False

    def read(self, *, whole_lines: bool = False) -> str:
        """What the log has that was not read before; with `whole_lines`, not the end of a line
        that is being written."""
        with self._folder.paths.log.open("rb") as file:
            file.seek(self._offset)
            content = file.read()
        if whole_lines:
            content = content[: content.rfind(b"\n") + 1]
        self._offset += len(content)
        lines = content.decode("utf-8", errors="replace").splitlines(keepends=True)
        return "".join(filter(self._wanted, lines))

    def follow(self) -> Iterator[str]:
        """Yield what the log gets until no attempt is at work, or its heartbeat stands still."""
        observer = LeaseObserver()
        while observer.state(self._folder.attempts)[0] is LeaseState.HELD:
            yield self.read(whole_lines=True)
            time.sleep(POLL_SECONDS)
        yield self.read()

    def summary(self) -> str:
        """One line: the stage, its state and since when, and the attempt whose log this is."""
        [state] = observe([self._folder])
        newest, since = self._newest_at_work(), state_since(state)
        text = f"{self._title}: {state.status}"
        text += "" if since is None else f" since {moment(since)}"
        if state.status is Status.INTERRUPTED or newest != state.attempt:
            text += f" ({state.reason})"
        return text if newest is None else f"{text}; attempt {newest.token}"

    def _wanted(self, line: str) -> bool:
        """Whether a line belongs to an attempt that is wanted; an entry may have many lines."""
        if entry := _ENTRY.match(line):
            self._is_wanted = int(entry[1]) >= self._token
        return self._is_wanted

    def _newest_at_work(self) -> AttemptRecord | None:
        """The newest attempt that did the stage's work; others only moved its output away."""
        attempts = self._folder.attempts
        records = map(attempts.record, range(attempts.newest_token(), 0, -1))
        return next((one for one in records if one and "set_aside" not in one.details), None)
