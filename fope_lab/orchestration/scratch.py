"""The files of Ray that a run leaves if it is killed, and how a later run clears them.

Each driver has the folder `.tune/DRIVER` in the store, on a disk that all nodes see. Nobody reads
what Ray writes there. The file SESSION in it names the folder of the driver's own Ray, if it
started one, RUN the sweeps that the driver runs, and since when, and STOP whether its stages are to
save a checkpoint and end.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fope_lab.atomic_files import read_json, write_json
from fope_lab.store import StopRequest, Store
from fope_lab.store.lease import is_gone

REMOVE_SECONDS = 3.0
"""How long to try to remove a folder to which something still writes."""
SESSION, RUN, STOP = "ray-session", "run.json", "stop"


@dataclass(frozen=True)
class DriverRun:
    """What a driver runs: the names of its sweeps, since a time in seconds since the epoch."""

    sweeps: tuple[str, ...]
    started: float


def ray_scratch_dir(store: Store, owner: str) -> Path:
    """The folder for Ray's own files of a driver's run."""
    return store.root / ".tune" / owner


def stop_request(store: Store, owner: str) -> StopRequest:
    """What a driver asks its stages to stop by."""
    return StopRequest(ray_scratch_dir(store, owner) / STOP)


@contextlib.contextmanager
def scratch_folder(store: Store, owner: str, sweeps: Sequence[str] = ()) -> Iterator[Path]:
    """The folder of this driver's run of `sweeps`, which is removed with those of dead drivers."""
    folder = ray_scratch_dir(store, owner)
    clear_dead_drivers(store)
    try:
        with contextlib.suppress(OSError):  # on a full disk, `stop` finds the run by its leases
            write_json(folder / RUN, {"sweeps": list(sweeps), "started": time.time()})
            stop_request(store, owner).prepare()
        yield folder
    finally:
        _remove_tree(folder)


def driver_runs(store: Store) -> dict[str, DriverRun]:
    """What each driver runs that has a folder, by the driver's name. It may have been killed."""
    found = {}
    for path in sorted((store.root / ".tune").glob(f"*/{RUN}")):
        content = read_json(path)
        if not isinstance(content, dict):
            continue
        sweeps, started = content.get("sweeps"), content.get("started")
        if isinstance(sweeps, list) and isinstance(started, int | float):
            found[path.parent.name] = DriverRun(tuple(map(str, sweeps)), float(started))
    return found


def note_session(folder: Path, session: str) -> None:
    """Remember the folder of the Ray that this driver has started."""
    with contextlib.suppress(OSError):  # on a full disk, the session's folder stays
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SESSION).write_text(session, encoding="utf-8")


def clear_dead_drivers(store: Store) -> None:
    """Remove what drivers of this machine left that were killed, with the folders of their Rays."""
    for folder in (store.root / ".tune").glob("*"):
        if is_gone(folder.name):
            remove_scratch(store, folder.name)


def remove_scratch(store: Store, owner: str) -> None:
    """Remove the folder of a driver that ends or is dead, and the folder of its Ray."""
    folder = ray_scratch_dir(store, owner)
    try:
        session = Path((folder / SESSION).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        session = None
    if session is not None and session.name.startswith("session_"):
        _remove_tree(session)
    _remove_tree(folder)


def _remove_tree(folder: Path) -> None:
    """Remove a folder. A process of Ray that is just ending may still write there for a moment."""
    until = time.monotonic() + REMOVE_SECONDS
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
        if time.monotonic() > until:
            return
        time.sleep(0.05)
