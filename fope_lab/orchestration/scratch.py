"""The files of Ray that a run leaves if it is killed, and how a later run clears them.

Each driver has the folder `.tune/DRIVER` in the store, on a disk that all nodes see. Nobody reads
what Ray writes there. The file SESSION in it names the folder of the driver's own Ray, if it
started one.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from fope_lab.store import Store
from fope_lab.store.lease import is_gone

SESSION = "ray-session"


def ray_scratch_dir(store: Store, owner: str) -> Path:
    """The folder for Ray's own files of a driver's run."""
    return store.root / ".tune" / owner


@contextlib.contextmanager
def scratch_folder(store: Store, owner: str) -> Iterator[Path]:
    """The folder of this driver's run, which is removed with those of dead drivers."""
    folder = ray_scratch_dir(store, owner)
    clear_dead_drivers(store)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
        shutil.rmtree(session, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
