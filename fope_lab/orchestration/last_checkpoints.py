"""How a run that is interrupted ends: every training saves a checkpoint first, in bounded time.

The driver writes its request to stop into a file in the store (fope_lab/store/stop_request.py). A
training looks at it between two steps, saves a checkpoint and ends, on whichever node it is. The
driver waits for that, and then ends Ray, which kills the other stages. `Tuner.fit` has no way to
tell trials to end by themselves: all it can do is to kill them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from ray import tune

from fope_lab.orchestration.searcher import StageSearcher
from fope_lab.orchestration.signals import Interruption
from fope_lab.store import Status, StopRequest, Store
from fope_lab.sweep.graph import Stage

CHECKPOINT_SECONDS = 60.0
"""How long an interrupted run waits for the checkpoints of its trainings at most."""
LOOK_SECONDS = 0.2
"""How often the driver looks whether trainings have ended."""

Say = Callable[[str], None]


class LastCheckpoints(tune.Callback):
    """Ends a run after a signal: Tune calls it at each turn of its loop.

    It raises KeyboardInterrupt when all trainings have saved a checkpoint, or time is up.
    """

    def __init__(
        self,
        interruption: Interruption,
        request: StopRequest,
        searcher: StageSearcher,
        stages: Mapping[str, Stage],
        store: Store,
        owner: str,
        say: Say,
    ) -> None:
        """`stages` are those of the run by key, `owner` is this driver, and `say` prints a line."""
        self._interruption, self._request, self._searcher = interruption, request, searcher
        self._stages, self._store, self._owner, self._say = stages, store, owner, say
        self._until: float | None = None
        self._next_look = 0.0

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Raises KeyboardInterrupt when the run can end after a signal."""
        if not self._interruption.noted:
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
            folder = self._store.folder(stage.kind, stage.key)
            newest = folder.checkpoint()
            step = newest.step if newest else 0
            self._say(
                f"{stage.label} saved no checkpoint within {CHECKPOINT_SECONDS:g} s; the next run"
                f" goes on from step {step}"
            )
        raise KeyboardInterrupt

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its callbacks for `Tuner.restore`, which is not used."""
        return {}

    def _ask(self) -> None:
        """Ask the stages to stop, and say so if a training is among them."""
        training = self._training()
        try:
            self._request.make()
        except OSError:  # on a full disk, on which no checkpoint can be saved either
            self._until = 0.0
            return
        if training:
            of = "the training" if len(training) == 1 else f"{len(training)} trainings"
            self._say(
                f"Interrupted: writing checkpoints of {of}, for {CHECKPOINT_SECONDS:g} s at most;"
                " Ctrl-C again ends the run at once"
            )

    def _training(self) -> list[Stage]:
        """The trainings that this driver has begun, and whose trials have not ended."""
        found = []
        for key, state in self._searcher.states().items():
            stage = self._stages[key]
            if not stage.spec.trains or state.status is not Status.RUNNING or state.elsewhere:
                continue
            newest = self._store.folder(stage.kind, key).attempts.newest()
            if newest is not None and newest.owner == self._owner:
                found.append(stage)
        return found
