"""The states of stages as another process can tell them, by watching heartbeats for a moment."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from fope_lab.store.folder import StageFolder
from fope_lab.store.lease import LOOK_SECONDS, patience_with
from fope_lab.store.state import StageState, Status


def observe(folders: Sequence[StageFolder]) -> list[StageState]:
    """The state of each stage.

    If any is marked as running, this watches heartbeats for LOOK_SECONDS. Where one stands still,
    the stage counts as interrupted, although a run waits a little longer before it takes the stage
    over.
    """
    states = [folder.state() for folder in folders]
    running = [i for i, state in enumerate(states) if state.status is Status.RUNNING]
    before = {i: folders[i].attempts.newest_beat() for i in running}
    if running:
        time.sleep(LOOK_SECONDS)
    for i in running:
        now, state = folders[i].attempts.newest_beat(), folders[i].state()  # it may have ended
        if state.status is Status.RUNNING and now == before[i]:
            patience = patience_with(state.attempt.owner if state.attempt else "")
            reason = (
                f"no heartbeat for {LOOK_SECONDS:g} s; {state.reason};"
                f" another run takes it over after {patience:g} s"
            )
            state = replace(state, status=Status.INTERRUPTED, reason=reason)
        states[i] = state
    return states
