"""What a store holds: its stages with their states, sizes and ages."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fope_lab.housekeeping.known_stages import KnownStage, known_stages
from fope_lab.store import StageState, Store
from fope_lab.store.observation import observe


@dataclass(frozen=True)
class StoredStage:
    """A stage that somebody began, and the bytes of its folder.

    `stage` has the first of its names, and `sweeps` all sweeps that have it. `since` is when it
    got its state, in seconds since the epoch.
    """

    stage: KnownStage
    sweeps: tuple[str, ...]
    state: StageState
    size: int
    since: float | None


@dataclass(frozen=True)
class Contents:
    """The stages of a store, the largest first, and the bytes of all else that is in it."""

    root: Path
    stages: tuple[StoredStage, ...]
    other_bytes: int


def contents(store: Store) -> Contents:
    """Look at all of a store. This takes a moment if any stage is marked as running."""
    named: dict[Path, list[KnownStage]] = {}
    for stage in known_stages(store):
        named.setdefault(stage.folder.path, []).append(stage)
    folders = store.folders()
    stages = []
    for folder, state in zip(folders, observe(folders), strict=True):
        names = named[folder.path]
        sweeps = tuple(name.sweep for name in names if name.sweep)
        stages.append(
            StoredStage(names[0], sweeps, state, size_of(folder.path), state_since(state))
        )
    stages.sort(key=lambda stage: (-stage.size, stage.stage.label, stage.stage.key))
    other = size_of(store.root) - sum(stage.size for stage in stages)
    return Contents(store.root, tuple(stages), max(other, 0))


def state_since(state: StageState) -> float | None:
    """When the newest attempt ended, or began if it has not; None if there was none."""
    if state.attempt is None:
        return None
    ended = (state.attempt.end or {}).get("time")
    when = state.attempt.details.get("started") if ended is None else ended
    return None if when is None else float(when)


def size_of(path: Path) -> int:
    """The bytes of a file, or of all files below a folder; what vanishes meanwhile counts as 0."""
    return sum(size for _, size in files_with_sizes(path))


def files_with_sizes(path: Path) -> Iterator[tuple[Path, int]]:
    """Each file below a folder, or the file itself, with its bytes; no link is followed."""
    if path.is_symlink() or not path.is_dir():
        yield path, _bytes(path)
    for folder, _, names in os.walk(path):
        for name in names:
            yield Path(folder, name), _bytes(Path(folder, name))


def _bytes(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.lstat().st_size
    return 0
