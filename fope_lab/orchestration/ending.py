"""How a run ends at a signal: every training saves a checkpoint first, in bounded time.

The driver writes its request to stop into a file in the store (fope_lab/store/lease.py). A training
looks at it between two steps, saves a checkpoint and ends. The driver waits for that, and then ends
Ray, which kills the other stages: `Tuner.fit` itself can only kill trials.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType

from fope_lab.store.lease import StopRequest
from fope_lab.store.root import Store
from fope_lab.store.state import StageState, Status
from fope_lab.sweep.graph import Stage

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, the signal of `kill` and of batch systems, and that of a terminal that is closed."""
CHECKPOINT_SECONDS = 60.0
"""How long an interrupted run waits for the checkpoints of its trainings at most."""
LOOK_SECONDS = 0.2
"""How often the driver looks whether trainings have ended."""

Say = Callable[[str], None]


@contextlib.contextmanager
def signals_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a run as Ctrl-C does. An ignored signal, as nohup's, stays so."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handling((signal.SIGTERM, signal.SIGHUP), interrupt):
        yield


class Interruption:
    """Notes the first signal that ends a run; a second one ends it at once.

    An exception in the middle of Ray's code, or of an import, may be swallowed there. So the run
    asks for the signal where it can end.
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
        signal.alarm(0)  # while Ray starts, its own handler would abort in three seconds
        if self.noted:
            raise KeyboardInterrupt
        self.noted = True


@contextlib.contextmanager
def ray_starting(interruption: Interruption) -> Iterator[None]:
    """Have a signal take effect once Ray has started: to end it earlier crashes the process.

    Ray's processes never hear SIGHUP: if the terminal is closed, trainings save a checkpoint.
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
def _handling(
    numbers: tuple[signal.Signals, ...], handler: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
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


@dataclass
class LastCheckpoints:
    """Ends a run of `stages` after a signal, once all trainings have saved a checkpoint or time is
    up."""

    interruption: Interruption
    request: StopRequest
    states: Callable[[], Mapping[str, StageState]]
    stages: Mapping[str, Stage]
    store: Store
    owner: str
    say: Say
    _until: float | None = None
    _next_look: float = 0.0

    def look(self) -> None:
        """Raises KeyboardInterrupt when the run can end; called at each turn of Tune's loop."""
        if not self.interruption.noted:
            return
        now = time.monotonic()
        if self._until is None:
            self._until = now + CHECKPOINT_SECONDS
            self._ask()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        training = self._training()
        if training and now < self._until:
            return
        for stage in training:
            newest = self.store.folder(stage.kind, stage.key).checkpoint()
            self.say(
                f"{stage.label} saved no checkpoint within {CHECKPOINT_SECONDS:g} s; the next run"
                f" goes on from step {newest.step if newest else 0}"
            )
        raise KeyboardInterrupt

    def _ask(self) -> None:
        training = self._training()
        try:
            self.request.make()
        except OSError:  # on a full disk, on which no checkpoint can be saved either
            self._until = 0.0
            return
        if training:
            of = "the training" if len(training) == 1 else f"{len(training)} trainings"
            self.say(
                f"Interrupted: writing checkpoints of {of}, for {CHECKPOINT_SECONDS:g} s at most;"
                " Ctrl-C again ends the run at once"
            )

    def _training(self) -> list[Stage]:
        """The trainings that this driver began and whose trials still run."""
        found = []
        for key, state in self.states().items():
            stage = self.stages[key]
            if stage.spec.trains and state.status is Status.RUNNING and not state.elsewhere:
                newest = self.store.folder(stage.kind, key).attempts.newest()
                if newest is not None and newest.owner == self.owner:
                    found.append(stage)
        return found
