"""Watches runs of sweeps from another process, until nothing runs them any more."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fope_lab.orchestration.failures import States
from fope_lab.orchestration.progress_view import live_view, observe_states
from fope_lab.orchestration.run_progress import RunProgress
from fope_lab.orchestration.stop import drivers_of_recorded
from fope_lab.planning.capacity import Amounts, amounts
from fope_lab.planning.forecast import forecast_seconds
from fope_lab.store import Status, Store
from fope_lab.sweep.graph import Stage, Sweep

if TYPE_CHECKING:
    from rich.console import Console

LOOK_SECONDS = 2.0
"""The time between two looks at the store."""


def watch(sweeps: Sequence[Sweep], store: Store, console: Console) -> None:
    """Show the progress of runs that other processes make, until nothing runs the sweeps."""
    stages = list({stage.key: stage for sweep in sweeps for stage in sweep.stages}.values())
    states: States = observe_states(sweeps, store)
    most: Counter[str] = Counter()

    def room() -> Amounts:
        """The most that ran at once: this process does not know the cluster."""
        for name, amount in _occupied(stages, states).items():
            most[name] = max(most[name], amount)
        return most

    progress = RunProgress(stages, store, forecast_seconds(stages, store), room)
    over = threading.Event()
    with live_view(progress, lambda: states, console):
        while _runs(sweeps, states, store) and not over.wait(LOOK_SECONDS):
            states = observe_states(sweeps, store)


def _runs(sweeps: Sequence[Sweep], states: States, store: Store) -> bool:
    if any(state.status is Status.RUNNING for state in states.values()):
        return True
    return any(drivers_of_recorded(store, sweep.name) for sweep in sweeps)


def _occupied(stages: Sequence[Stage], states: States) -> Counter[str]:
    """What all running stages occupy together."""
    found: Counter[str] = Counter()
    for stage in stages:
        if states[stage.key].status is Status.RUNNING:
            found.update(amounts(stage.spec.resources))
    return found
