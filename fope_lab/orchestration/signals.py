"""Signals that end a run as Ctrl-C does."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, the signal of `kill` and of batch systems, and that of a terminal that is closed."""

_Handler = Callable[[int, FrameType | None], None]


@contextlib.contextmanager
def signals_interrupt() -> Iterator[None]:
    """SIGTERM, and SIGHUP of a terminal that is closed, end a run as Ctrl-C does: with a store that
    the next run continues from. A signal that is ignored, as nohup ignores SIGHUP, stays so."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handling((signal.SIGTERM, signal.SIGHUP), interrupt):
        yield


class Interruption:
    """Notes the first signal that ends a run, while Ray's code runs; a second one ends it at once.

    An exception that a signal raises in the middle of Ray's code, or of an import, may be swallowed
    there. So the run asks for the signal where it can end.
    """

    def __init__(self) -> None:
        self.noted = False

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Note the first signal that comes in the block instead of raising KeyboardInterrupt."""
        with _handling(ENDING, self._note):
            yield

    def check(self) -> None:
        """Raises KeyboardInterrupt if a signal was noted."""
        if self.noted:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        signal.alarm(0)  # Ray's own handler, there while it starts, would abort in three seconds
        if self.noted:
            raise KeyboardInterrupt
        self.noted = True


@contextlib.contextmanager
def ray_starting(interruption: Interruption) -> Iterator[None]:
    """A signal that comes while Ray starts takes effect once Ray has started: to end Ray earlier
    crashes the process.

    Ray's processes do not hear SIGHUP: if the terminal is closed, trainings save a checkpoint.
    """
    from ray._private import utils

    set_handler = utils.set_sigterm_handler
    utils.set_sigterm_handler = lambda handler: None  # it would end the process at once
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP,))
    try:
        with interruption.noting():
            try:
                yield
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)  # what came is noted now
    finally:
        utils.set_sigterm_handler = set_handler
    interruption.check()


@contextlib.contextmanager
def _handling(numbers: tuple[signal.Signals, ...], handler: _Handler) -> Iterator[None]:
    """Let a handler hear the signals that are not ignored."""
    previous = {number: signal.getsignal(number) for number in numbers}
    heard = [number for number in numbers if previous[number] is not signal.SIG_IGN]
    for number in heard:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, previous[number])
