"""The drivers that run sweeps of a store: their folders, who is alive, and how to end them.

Each driver has the folder `.tune/DRIVER` in the store, on a disk that all nodes see. Of its files,
RAY names the folder of the driver's own Ray, if it started one, RUN its sweeps and since when
it runs them, and STOP asks its stages to save a checkpoint and end. A later run removes what a
killed driver left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from fope_lab.config.atomic_files import read_json, write_json
from fope_lab.config.problems import did_you_mean, name_list
from fope_lab.orchestration.cluster_address import LOCAL, RAY_FOLDER, private_folder
from fope_lab.store.attempts import DriverProcess, is_gone, process_of
from fope_lab.store.folder import observe
from fope_lab.store.lease import StopRequest
from fope_lab.store.records import StoreError
from fope_lab.store.root import Store
from fope_lab.store.state import Status
from fope_lab.tracking.ledger import recorded_sweeps
from fope_lab.tracking.outline import Outline

REMOVE_SECONDS = 3.0
"""How long to try to remove a folder to which something still writes."""
END_SECONDS = 120.0
"""How long to wait for a run to end: it writes checkpoints, stops Ray and updates MLflow."""
POLL_SECONDS = 0.2
CLOCK_SECONDS = 2.0
"""How far two readings of this machine's clock may differ, of a process's start and of a record."""
RAY, RUN, STOP = "ray", "run.json", "stop"
Say = Callable[[str], None]


def stop_request(store: Store, owner: str) -> StopRequest:
    """The request by which a driver asks its stages to stop."""
    return StopRequest(store.driver(owner) / STOP)


@contextlib.contextmanager
def scratch_folder(store: Store, owner: str, sweeps: Sequence[str] = ()) -> Iterator[Path]:
    """The folder of this driver's run of `sweeps`, which is removed with those of dead drivers."""
    folder = store.driver(owner)
    for other in store.drivers():
        if is_gone(other.name):
            _remove_scratch(other)
    try:
        with contextlib.suppress(OSError):  # on a full disk, `stop` finds the run by its leases
            write_json(folder / RUN, {"sweeps": list(sweeps), "started": time.time()})
            stop_request(store, owner).prepare()
        yield folder
    finally:
        own = _noted_ray(folder)
        _remove_tree(folder)
        if own is not None:
            _note_ray(folder, own)


@dataclass
class OwnRay:
    """The folder of the Ray that a driver starts; `path` is None where it joins a cluster."""

    path: Path | None
    has_failed: bool = True
    """Whether the folder stays, with Ray's logs, until the next run of the store."""


@contextlib.contextmanager
def ray_folder(scratch: Path, address: str, say: Say) -> Iterator[OwnRay]:
    """A private folder for a Ray of the driver's own, if it starts one. It goes with the run, or if
    something has failed with the next one: a line says where it is. `scratch` is the driver's."""
    own = OwnRay(private_folder() if address == LOCAL else None)
    if own.path is None:
        yield own
        return
    _note_ray(scratch, own.path)
    try:
        yield own
    except KeyboardInterrupt:
        own.has_failed = False
        raise
    finally:
        if own.has_failed:
            say(f"Ray's logs are in {own.path} until the next run")
        else:
            _remove_tree(own.path)


def _note_ray(scratch: Path, folder: Path) -> None:
    with contextlib.suppress(OSError):  # on a full disk, it stays
        scratch.mkdir(parents=True, exist_ok=True)
        (scratch / RAY).write_text(str(folder), encoding="utf-8")


def _noted_ray(scratch: Path) -> Path | None:
    """The folder of a driver's Ray, if it is there."""
    with contextlib.suppress(OSError, ValueError):
        folder = Path((scratch / RAY).read_text(encoding="utf-8"))
        if folder.name.startswith(RAY_FOLDER) and folder.is_dir():
            return folder
    return None


def _remove_scratch(folder: Path) -> None:
    """Remove the folder of a dead driver, and that of its Ray."""
    if (own := _noted_ray(folder)) is not None:
        _remove_tree(own)
    _remove_tree(folder)


def _remove_tree(folder: Path) -> None:
    """Remove a folder. A process of Ray that is just ending may still write there for a moment."""
    until = time.monotonic() + REMOVE_SECONDS
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
        if time.monotonic() > until:
            return
        time.sleep(0.05)


@dataclass(frozen=True)
class LiveDriver:
    """A driver that runs a sweep: its process if the name gives it, all its sweeps if known."""

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
    outlines = {outline.name: outline for outline in recorded_sweeps(store)}
    if sweep not in outlines:
        near, allowed = did_you_mean(sweep, outlines), name_list(outlines)
        raise StoreError(f"no sweep {sweep!r} has run in {store}{near} (allowed: {allowed})")
    drivers = _drivers(store, outlines[sweep])
    if not drivers:
        say(f"{sweep}: nothing is running in {store}")
    asked, ended = [], True
    for driver in drivers:
        process = driver.process
        others = [name for name in driver.sweeps if name != sweep]
        also = f", which also runs {', '.join(others)}" if others else ""
        fault = "end it there, this machine can't"
        if process is not None and process.is_here:
            try:
                # Like Ctrl-C, but a run that was started in the background ignores SIGINT.
                os.kill(process.pid, signal.SIGTERM)
                say(f"{sweep}: asked {driver}{also} to end")
                asked.append(process)
                continue
            except ProcessLookupError:
                continue
            except PermissionError:
                fault = "it is another user's"
        say(f"{sweep}: {driver} runs it{also}; {fault}")
        ended = False
    until = time.monotonic() + seconds
    for process in asked:
        while (alive := _is_alive(process.pid)) and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
        fate = "has ended; the next run goes on from the last checkpoints"
        say(f"{sweep}: {process} {f'has not ended after {seconds:g} s' if alive else fate}")
        ended = ended and not alive
    return ended


def drivers_of_recorded(store: Store, sweep: str) -> list[LiveDriver]:
    """The drivers that run a sweep; none of a sweep that the store does not know."""
    outline = next((one for one in recorded_sweeps(store) if one.name == sweep), None)
    return [] if outline is None else _drivers(store, outline)


def _drivers(store: Store, outline: Outline) -> list[LiveDriver]:
    """The drivers that run a sweep, as far as this machine can tell: those here while their
    processes are there, others while the heartbeat of a stage of theirs moves."""
    runs: dict[str, tuple[tuple[str, ...], float]] = {}  # each driver's sweeps, and since when
    for path in store.drivers():
        match read_json(path / RUN):
            case {"sweeps": list(sweeps), "started": int() | float() as started}:
                runs[path.name] = tuple(map(str, sweeps)), float(started)
    since = {name: started for name, (sweeps, started) in runs.items() if outline.name in sweeps}
    elsewhere = []
    for stage in outline.stages:
        folder = store.folder(stage.kind, stage.key)
        attempt = folder.attempts.newest()
        if attempt is None or attempt.end is not None:
            continue
        if attempt.owner in runs and attempt.owner not in since:  # it shares the stage
            continue
        process = process_of(attempt.owner)
        if process is not None and process.is_here:
            since.setdefault(attempt.owner, float(attempt.details.get("started", 0.0)))
        else:
            elsewhere.append(folder)
    found: dict[str, DriverProcess | None] = {}
    for name, started in since.items():
        process = process_of(name)
        if process is not None and process.is_here and _is_alive(process.pid, started):
            found[name] = process
    for state in observe(elsewhere):
        if state.status is Status.RUNNING and state.attempt is not None:
            found[state.attempt.owner] = process_of(state.attempt.owner)
    return [
        LiveDriver(name, process, runs[name][0] if name in runs else ())
        for name, process in found.items()
    ]


def _is_alive(pid: int, started: float | None = None) -> bool:
    """Whether a process is there, and was at `started`: another may have its number by now."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return started is None or process.create_time() <= started + CLOCK_SECONDS
    except psutil.Error:
        return False
