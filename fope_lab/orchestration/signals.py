"""Signals that end a run as Ctrl-C does."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

_Handler = Callable[[int, FrameType | None], None]


@contextlib.contextmanager
def signals_interrupt() -> Iterator[None]:
    """SIGTERM, and SIGHUP of a terminal that is closed, end a run as Ctrl-C does: with a store that
    the next run continues from. A signal that is ignored, as nohup ignores SIGHUP, stays so."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handling((signal.SIGTERM, signal.SIGHUP), interrupt):
        yield


@contextlib.contextmanager
def signals_wait_for_ray() -> Iterator[None]:
    """A signal that comes while Ray starts takes effect once Ray has started: to end Ray earlier
    crashes the process. A second signal takes effect at once."""
    from ray._private import utils

    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        signal.alarm(0)  # Ray's own handler, there for a moment, would abort in three seconds
        if noted:
            raise KeyboardInterrupt
        noted.append(number)

    set_handler = utils.set_sigterm_handler
    utils.set_sigterm_handler = lambda handler: None  # it would end the process at once
    try:
        with _handling((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), note):
            yield
    finally:
        utils.set_sigterm_handler = set_handler
    if noted:
        raise KeyboardInterrupt


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
