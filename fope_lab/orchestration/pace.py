"""When another slot is worth its start.

A process takes seconds to load torch, with all of a core, in which others do hundreds of short
stages. So only a few slots start at once where they would hold each other up. And where stages are
short, none starts if the slots of its size will have done what is ready before it could begin, or
if the last ones to start did not make them any quicker. Long stages get all the slots that fit.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable

from fope_lab.config.devices import cores

START_SECONDS = 120.0
"""For how long a slot that starts keeps others from starting."""
SLOWER = 1.5
"""A slot that takes this many times as long as the quickest one was held up by others."""
LOAD_SECONDS = 10.0
"""About how long a process takes to load torch on a busy machine."""
WATCH_SECONDS = 1.0
"""How long a number of slots is watched before its pace is known."""
SHORT = 10
"""Stages are short if a slot does as many of them in LOAD_SECONDS."""


class Starts:
    """How many slots may start at once: at first as many as this machine has cores. Each that was
    not held up by others allows one more, and each that was allows one less."""

    def __init__(self) -> None:
        self._at_once, self._quickest = cores(), math.inf

    def note(self, seconds: float) -> None:
        """Note that a slot has started, and how long it took."""
        self._quickest = min(self._quickest, seconds)
        more = 1 if seconds <= SLOWER * self._quickest else -1
        self._at_once = max(cores(), self._at_once + more)

    def are_enough(self, starting: Iterable[float]) -> bool:
        """Whether no other slot may start now; `starting` says for how many seconds each has."""
        return sum(s < START_SECONDS for s in starting) >= self._at_once


class Pace:
    """How quickly the slots of one size do stages."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` returns the time in seconds, and never goes back."""
        self._clock = clock
        self._ended = deque[float]()
        self._began: float | None = None
        self._slots, self._ended_since, self._since = 0, 0, 0.0
        self._paces: dict[int, float] = {}  # by the number of slots, while no other one started

    def note_end(self) -> None:
        """Note that a stage has ended."""
        self._ended.append(self._clock())
        self._ended_since += 1

    def is_enough(self, ready: int, working: int, starting: int) -> bool:
        """Whether the `working` slots do the stages that are ready as soon as more slots would."""
        if not working:
            return False
        now = self._clock()
        if working != self._slots:
            self._slots, self._ended_since, self._since = working, 0, now
        self._began = now if self._began is None else self._began
        while self._ended and self._ended[0] < now - LOAD_SECONDS:
            self._ended.popleft()
        if (watched := min(now - self._began, LOAD_SECONDS)) < WATCH_SECONDS:
            return True
        expected = len(self._ended) / watched * LOAD_SECONDS
        if expected < SHORT * working:
            return False
        return expected >= ready or not self._have_more_helped(now - self._since, starting)

    def _have_more_helped(self, watched: float, starting: int) -> bool:
        """Whether this many slots have brought a quarter at least of what they could have brought
        over the best pace of fewer slots; no while that is not known yet."""
        if watched < WATCH_SECONDS:
            return False
        pace = self._ended_since / watched
        if not starting:
            self._paces[self._slots] = pace
        fewer = [(before, slots) for slots, before in self._paces.items() if slots < self._slots]
        if not fewer:
            return True
        before, slots = max(fewer)
        return pace >= before * (1 + (self._slots / slots - 1) / 4)
