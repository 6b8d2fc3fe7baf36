"""Signals that end a run as Ctrl-C does."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def signals_interrupt() -> Iterator[None]:
    """SIGTERM, and SIGHUP of a terminal that is closed, end a run as Ctrl-C does: with a store that
    the next run continues from. A signal that is ignored, as nohup ignores SIGHUP, stays so."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    previous = {number: signal.getsignal(number) for number in numbers}
    heard = [number for number in numbers if previous[number] is not signal.SIG_IGN]
    for number in heard:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, previous[number])
