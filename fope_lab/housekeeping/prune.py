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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fope_lab.housekeeping.contents import size_of
from fope_lab.housekeeping.known_stages import (
    KnownStage,
    known_stages,
    recorded_needs,
    references,
    with_ancestors,
)
from fope_lab.store import StageFolder, Store
from fope_lab.store.attempts import LeaseHeldError, driver_name, is_gone
from fope_lab.store.checkpoint import list_checkpoints
from fope_lab.store.lease import LEASE_SECONDS, LeaseObserver, LeaseState

POLL_SECONDS = 0.25
OLD_SECONDS = 3600.0
"""The age from which a temporary file counts as left by a process that was killed."""
REMOVED = ".removed-"
"""How the name begins that a folder has while it is removed."""


@dataclass(frozen=True)
class Waste:
    """Something that nothing refers to: where it is, why it may go, and its bytes.

    `remove` removes it. It raises LeaseHeldError if somebody has begun to work on it.
    """

    path: Path
    why: str
    size: int
    remove: Callable[[], None]


@dataclass(frozen=True)
class Prunable:
    """What may be removed from a store, the largest first, and in one line each what may not."""

    waste: tuple[Waste, ...]
    notes: tuple[str, ...]

    @property
    def size(self) -> int:
        """The bytes of all of it."""
        return sum(waste.size for waste in self.waste)


def prunable(store: Store, lease_seconds: float = LEASE_SECONDS) -> Prunable:
    """Find what nothing in a store refers to.

    If a stage is marked as running, this watches its heartbeat until it moves, or for as long as
    another driver would wait before it takes the stage over.
    """
    known = {stage.folder.path: stage for stage in reversed(known_stages(store))}
    folders = store.folders()
    leases = watch_leases(folders, lease_seconds)
    busy = leases.held
    needs = recorded_needs(store)
    notes = list(needs.notes)
    if busy:
        notes.append(f"{_stages(len(busy))} at work and left alone")
    kept = {folder.path for folder in folders}
    if needs.is_known:
        refers = {**references(store, known.values())}
        for key, parents in needs.references.items():
            refers[key] = refers.get(key, frozenset()) | parents
        roots = needs.references.keys() | {path.name for path in busy}
        wanted = with_ancestors(roots, refers)
        kept = {folder.path for folder in folders if folder.path.name in wanted}
    else:
        notes.append("nobody can tell which stages are needed, so that none is removed")
    owner, found = driver_name(), list[Waste]()
    for folder in folders:
        if folder.path not in kept:
            abandoned = leases.stale.get(folder.path)
            found.append(_stage(store, known[folder.path], owner, abandoned))
        elif folder.path not in busy:
            found += _inside(known[folder.path])
    found += _outside(store)
    found.sort(key=lambda waste: (-waste.size, waste.path))
    return Prunable(tuple(found), tuple(notes))


def remove(store: Store, agreed: Prunable) -> tuple[int, list[str]]:
    """Remove what was agreed on and what still nothing refers to; what is asked for by now stays.

    Returns the bytes that were removed, and a line for each thing that stayed.
    """
    today = {waste.path: waste for waste in prunable(store).waste}
    removed, left = 0, list[str]()
    for waste in agreed.waste:
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


@dataclass(frozen=True)
class Leases:
    """The folders of the stages that somebody works on, and the tokens of leases that are stale."""

    held: frozenset[Path]
    stale: Mapping[Path, int]


def watch_leases(folders: Sequence[StageFolder], seconds: float) -> Leases:
    """Find out on which stages somebody works.

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
    return Leases(frozenset(held), stale)


def _stage(store: Store, stage: KnownStage, owner: str, abandoned: int | None) -> Waste:
    """A stage that nothing refers to; `abandoned` is the token of its lease if that is stale."""
    attempts = stage.folder.attempts

    def remove() -> None:
        token = attempts.next_token(owner, supersede=abandoned)
        attempts.take(token, owner, {"set_aside": "removed"})  # from now on nobody begins it
        away = store.root / f"{REMOVED}{uuid.uuid4().hex}"
        os.rename(stage.folder.path, away)
        shutil.rmtree(away, ignore_errors=True)

    path = stage.folder.path
    return Waste(path, f"{stage.title}: no recorded sweep has this stage", size_of(path), remove)


def _inside(stage: KnownStage) -> Iterator[Waste]:
    """What may go from the folder of a stage that stays and that nobody works on."""
    folder, newest = stage.folder, stage.folder.attempts.newest_token()
    paths = folder.paths
    final = folder.final_checkpoint()
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
    for path in sorted(store.root.glob(f"{REMOVED}*")):
        yield _file(path, "a stage that was being removed")
    for path in sorted(_temporary_files(store.root)):
        with contextlib.suppress(OSError):
            if path.is_file() and time.time() - path.stat().st_mtime > OLD_SECONDS:
                yield _file(path, "a temporary file of a process that was killed")


def _temporary_files(root: Path) -> Iterator[Path]:
    """The files under `root` that are named as unfinished ones are.

    Folders that vanish meanwhile are passed over, which Path.rglob does not do.
    """
    for folder, _, names in os.walk(root):
        yield from (Path(folder, name) for name in fnmatch.filter(names, ".*.tmp"))


def _file(path: Path, why: str) -> Waste:
    def remove() -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    return Waste(path, why, size_of(path), remove)


def _stages(count: int) -> str:
    return f"{count} stage{' is' if count == 1 else 's are'}"
