"""What a store holds that nothing refers to, and how it is removed.

A stage is removed only if no recorded sweep has it, no stage that is kept refers to it, and nobody
works on it. Inside the folders of other stages, only what no attempt will read again is removed.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fope_lab.cli.housekeeping.contents import size_of
from fope_lab.cli.housekeeping.known_stages import KnownStage, known_stages, references, referred
from fope_lab.config.problems import UserError
from fope_lab.store.attempts import LeaseHeldError, driver_name, is_gone
from fope_lab.store.checkpoint import list_checkpoints
from fope_lab.store.folder import StageFolder
from fope_lab.store.lease import LEASE_SECONDS, LeaseObserver, LeaseState
from fope_lab.store.root import Store
from fope_lab.sweep import load_sweep
from fope_lab.tracking.ledger import damaged_plans

POLL_SECONDS = 0.25
OLD_SECONDS = 3600.0
"""The age from which a temporary file counts as left by a process that was killed."""
REMOVED = ".removed-"
"""How the name begins that a folder has while it is removed."""


@dataclass(frozen=True)
class Waste:
    """Something that nothing refers to: where it is, why it may go, and its bytes; `remove` raises
    LeaseHeldError if somebody has begun to work on it."""

    path: Path
    why: str
    size: int
    remove: Callable[[], None]


def prunable(store: Store, lease_seconds: float = LEASE_SECONDS) -> tuple[list[Waste], list[str]]:
    """Find what nothing in a store refers to, the largest first, and in one line each what stays.

    If a stage is marked as running, this watches its heartbeat until it moves, or for as long as
    another driver would wait before it takes the stage over.
    """
    known = known_stages(store)
    by_path = {stage.folder.path: stage for stage in reversed(known)}
    folders = store.folders()
    busy, stale = watch_leases(folders, lease_seconds)
    needed, notes = _needed(store, known, {path.name for path in busy})
    if busy:
        number = "1 stage is" if len(busy) == 1 else f"{len(busy)} stages are"
        notes.append(f"{number} at work and left alone")
    if needed is None:
        notes.append("nobody can tell which stages are needed, so that none is removed")
    found = list(_outside(store))
    for folder in folders:
        path = folder.path
        if needed is not None and path.name not in needed:
            found.append(_stage(store, by_path[path], stale.get(path)))
        elif path not in busy:
            found += _inside(by_path[path])
    return sorted(found, key=lambda waste: (-waste.size, waste.path)), notes


def remove(store: Store, agreed: Sequence[Waste]) -> tuple[int, list[str]]:
    """Remove what was agreed on if nothing refers to it still; what has been asked for since stays.

    Returns the bytes that were removed, and a line for each thing that stayed.
    """
    today = {waste.path: waste for waste in prunable(store)[0]}
    removed, left = 0, list[str]()
    for waste in agreed:
        if waste.path not in today:
            left.append(f"{waste.path} is needed by now")
            continue
        try:
            today[waste.path].remove()
        except LeaseHeldError as error:
            left.append(f"a driver works on {error}")
            continue
        except FileNotFoundError:
            if os.path.lexists(waste.path):
                raise
            continue  # another process has just removed it
        removed += waste.size
    return removed, left


def _needed(
    store: Store, known: Sequence[KnownStage], busy: set[str]
) -> tuple[set[str] | None, list[str]]:
    """The keys of what is at work, of what recorded sweeps asked for when they last ran or ask for
    today, and of all that these refer to, or None if nobody can tell; and what can't be read."""
    notes = [f"{path} is damaged" for path in damaged_plans(store)]
    sweeps = dict.fromkeys(stage.sweep for stage in known if stage.sweep)
    is_known = bool(sweeps) and not notes
    refers = references(store, known)
    pending = [*busy, *(stage.key for stage in known if stage.sweep)]
    for path in map(store.sweep_file, sweeps):
        if path is None or not path.is_file():
            continue
        try:
            today = load_sweep(path, store)
        except UserError:
            notes.append(f"{path} has errors: its stages are those of its last run")
            continue
        for stage in today.stages:
            pending.append(stage.key)
            parents = {*stage.parents.values(), *stage.checkpoints.values()}
            refers.setdefault(stage.key, set()).update(referred(store, parents))
    needed = set[str]()
    while pending:
        if (key := pending.pop()) not in needed:
            needed.add(key)
            pending += refers.get(key, ())
    return needed if is_known else None, notes


def watch_leases(
    folders: Sequence[StageFolder], seconds: float
) -> tuple[set[Path], dict[Path, int]]:
    """The folders of the stages that somebody works on, and the tokens of leases that are stale.

    An attempt that has not ended counts as at work until its heartbeat has stood still for
    `seconds`.
    """
    observer = LeaseObserver(seconds)
    undecided = {folder.path: folder for folder in folders}
    before: dict[Path, tuple[int, int]] = {}
    held, stale = set[Path](), dict[Path, int]()
    while undecided:
        for path, folder in list(undecided.items()):
            beat = folder.attempts.newest_beat()
            state, token = observer.state(folder.attempts)
            if state is LeaseState.HELD and before.setdefault(path, beat) == beat:
                continue  # until it moves, or has stood still for long enough
            del undecided[path]
            if state is LeaseState.HELD:
                held.add(path)
            elif state is LeaseState.STALE:
                stale[path] = token
        if undecided:
            time.sleep(POLL_SECONDS)
    return held, stale


def _stage(store: Store, stage: KnownStage, abandoned: int | None) -> Waste:
    """A stage that nothing refers to; `abandoned` is the token of its lease if that is stale."""
    path, attempts, owner = stage.folder.path, stage.folder.attempts, driver_name()

    def remove() -> None:
        token = attempts.next_token(owner, supersede=abandoned)
        attempts.take(token, owner, {"set_aside": "removed"})  # from now on nobody begins it
        away = store.root / f"{REMOVED}{uuid.uuid4().hex}"
        os.rename(path, away)
        shutil.rmtree(away, ignore_errors=True)

    return Waste(path, f"{stage.title}: no recorded sweep has this stage", size_of(path), remove)


def _inside(stage: KnownStage) -> Iterator[Waste]:
    """What may go from the folder of a stage that stays and that nobody works on."""
    folder, paths = stage.folder, stage.folder.paths
    newest, final = folder.attempts.newest_token(), folder.final_checkpoint()
    if folder.is_done():
        for path in sorted(paths.folder.glob("set-aside/*")):
            yield _file(path, f"{stage.title}: output that was moved away before a later attempt")
        for old in list_checkpoints(paths):
            if old != final and old.token <= newest:
                yield _file(old.path, f"{stage.title}: a checkpoint that the result replaced")
    for path in sorted(paths.checkpoints.glob(".[0-9]*")):
        if path.name[1:5].isdigit() and int(path.name[1:5]) <= newest:
            yield _file(path, f"{stage.title}: a checkpoint that was never finished")


def _outside(store: Store) -> Iterator[Waste]:
    """What processes that were killed left beside the stages, and temporary files anywhere."""
    for path in store.drivers():
        if is_gone(path.name):
            yield _file(path, "files of Ray of a run that was killed")
    for path in store.root.glob(f"{REMOVED}*"):
        yield _file(path, "a stage that was being removed")
    for folder, _, names in os.walk(store.root):  # Path.rglob fails if a folder vanishes meanwhile
        for path in (Path(folder, name) for name in fnmatch.filter(names, ".*.tmp")):
            with contextlib.suppress(OSError):
                if path.is_file() and time.time() - path.stat().st_mtime > OLD_SECONDS:
                    yield _file(path, "a temporary file of a process that was killed")


def _file(path: Path, why: str) -> Waste:
    def remove() -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    return Waste(path, why, size_of(path), remove)
