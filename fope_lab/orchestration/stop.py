"""Ends the runs of a sweep from another terminal, as Ctrl-C in their own would."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from fope_lab.config.problems import did_you_mean, name_list
from fope_lab.orchestration.scratch import DriverRun, driver_runs
from fope_lab.store import Status, Store, StoreError
from fope_lab.store.lease import AttemptRecord, DriverProcess, process_of
from fope_lab.store.observation import observe
from fope_lab.tracking.ledger import recorded_sweeps
from fope_lab.tracking.outline import Outline

END_SECONDS = 120.0
"""How long to wait for a run to end, which writes checkpoints, stops Ray and tells MLflow."""
POLL_SECONDS = 0.2
CLOCK_SECONDS = 2.0
"""How far two readings of this machine's clock may differ, of a process's start and of a record."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class LiveDriver:
    """A run of a sweep: its driver, the process of that if the name tells it, and all its sweeps.

    `sweeps` is empty if only a lease tells of the driver.
    """

    name: str
    process: DriverProcess | None
    sweeps: tuple[str, ...]

    def __str__(self) -> str:
        return str(self.process or self.name)


def stop(store: Store, sweep: str, say: Say, seconds: float = END_SECONDS) -> bool:
    """End the runs of a sweep and wait up to `seconds` for them; says what happens.

    Returns whether nothing runs it any more. Raises StoreError for a sweep that the store does not
    know.
    """
    drivers = live_drivers(store, sweep)
    if not drivers:
        say(f"{sweep}: nothing is running in {store.root}")
    asked, ended = [], True
    for driver in drivers:
        process = driver.process
        others = [name for name in driver.sweeps if name != sweep]
        also = f", which also runs {', '.join(others)}" if others else ""
        if process is None or not process.is_here:
            say(f"{sweep}: {driver} runs it{also}; end it there, this machine can't")
            ended = False
            continue
        try:
            # Like Ctrl-C, but a run that was started in the background ignores SIGINT.
            os.kill(process.pid, signal.SIGTERM)
        except ProcessLookupError:
            continue
        except PermissionError:
            say(f"{sweep}: {driver} runs it{also}; it is another user's")
            ended = False
            continue
        say(f"{sweep}: asked {driver}{also} to end")
        asked.append(process)
    until = time.monotonic() + seconds
    for process in asked:
        while _is_alive(process.pid) and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
        if _is_alive(process.pid):
            say(f"{sweep}: {process} has not ended after {seconds:g} s")
            ended = False
        else:
            say(f"{sweep}: {process} has ended; the next run goes on from the last checkpoints")
    return ended


def live_drivers(store: Store, sweep: str) -> list[LiveDriver]:
    """The drivers that run a sweep, as far as this machine can tell.

    A driver on this machine counts while its process is there, and another one while the heartbeat
    of a stage of its moves. Raises StoreError for a sweep that the store does not know.
    """
    outlines = {outline.name: outline for outline in recorded_sweeps(store)}
    if sweep not in outlines:
        near = did_you_mean(sweep, outlines)
        allowed = name_list(outlines)
        raise StoreError(f"no sweep {sweep!r} has run in {store.root}{near} (allowed: {allowed})")
    return _drivers(store, outlines[sweep])


def drivers_of_recorded(store: Store, sweep: str) -> list[LiveDriver]:
    """The drivers that run a sweep; none of a sweep that the store does not know."""
    outlines = {outline.name: outline for outline in recorded_sweeps(store)}
    return _drivers(store, outlines[sweep]) if sweep in outlines else []


def _drivers(store: Store, outline: Outline) -> list[LiveDriver]:
    sweep, runs = outline.name, driver_runs(store)
    since = {name: run.started for name, run in runs.items() if sweep in run.sweeps}
    folders = [store.folder(stage.kind, stage.key) for stage in outline.stages]
    leases = [(folder, folder.attempts.newest()) for folder in folders]
    elsewhere = []
    for folder, attempt in leases:
        if attempt is None or attempt.end is not None or not _may_run(attempt, sweep, runs):
            continue
        process = process_of(attempt.owner)
        if process is not None and process.is_here:
            since.setdefault(attempt.owner, float(attempt.details.get("started", 0.0)))
        else:
            elsewhere.append(folder)
    found = [
        name
        for name, started in since.items()
        if (process := process_of(name)) is not None
        and process.is_here
        and _is_alive(process.pid, started)
    ]
    for state in observe(elsewhere):
        if state.status is Status.RUNNING and state.attempt is not None:
            found.append(state.attempt.owner)
    return [
        LiveDriver(name, process_of(name), runs[name].sweeps if name in runs else ())
        for name in dict.fromkeys(found)
    ]


def _may_run(attempt: AttemptRecord, sweep: str, runs: dict[str, DriverRun]) -> bool:
    """Whether the owner of a lease may run the sweep: it may also share a stage with it."""
    return attempt.owner not in runs or sweep in runs[attempt.owner].sweeps


def _is_alive(pid: int, started: float | None = None) -> bool:
    """Whether a process is there, and was at the time `started`: another one may have its number
    by now."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return started is None or process.create_time() <= started + CLOCK_SECONDS
    except psutil.Error:
        return False
