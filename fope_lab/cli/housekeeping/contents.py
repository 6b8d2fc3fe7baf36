"""What a store holds: its stages with states and sizes, and how these are written."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fope_lab.cli.housekeeping.known_stages import KnownStage, known_stages
from fope_lab.store.folder import observe
from fope_lab.store.root import Store
from fope_lab.store.state import StageState

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True)
class StoredStage:
    """A stage that somebody began, by the first of its names, with its sweeps and its bytes."""

    stage: KnownStage
    sweeps: tuple[str, ...]
    state: StageState
    size: int


def contents(store: Store) -> tuple[list[StoredStage], int]:
    """The stages of a store, the largest first, and the bytes of all else that is in it."""
    named: dict[Path, list[KnownStage]] = {}
    for stage in known_stages(store):
        named.setdefault(stage.folder.path, []).append(stage)
    folders = store.folders()
    stages = []
    for folder, state in zip(folders, observe(folders), strict=True):
        names = named[folder.path]
        sweeps = tuple(dict.fromkeys(name.sweep for name in names if name.sweep))
        stages.append(StoredStage(names[0], sweeps, state, size_of(folder.path)))
    stages.sort(key=lambda stage: (-stage.size, stage.stage.label, stage.stage.key))
    return stages, max(size_of(store.root) - sum(stage.size for stage in stages), 0)


def state_since(state: StageState) -> float | None:
    """When the newest attempt ended, or began if it has not, in seconds since the epoch."""
    if state.attempt is None:
        return None
    when = (state.attempt.end or {}).get("time", state.attempt.details.get("started"))
    return None if when is None else float(when)


def size_of(path: Path) -> int:
    """The bytes of a file, or of all files below a folder."""
    return sum(size for _, size in files_with_sizes(path))


def files_with_sizes(path: Path) -> Iterator[tuple[Path, int]]:
    """Each file below a folder, or the file itself, with its bytes; no link is followed."""
    files: Iterator[Path] = iter([path])
    if path.is_dir() and not path.is_symlink():
        files = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    for file in files:
        with contextlib.suppress(OSError):
            yield file, file.lstat().st_size


def moment(seconds: float) -> str:
    """A time in seconds since the epoch, in UTC as in logs: 2026-01-31 09:05:00Z."""
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(seconds))


def span(seconds: float) -> str:
    """A duration in the largest unit of which it has two, else in seconds: 12 min, 3 h, 5 d."""
    for unit, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{max(seconds, 0):.0f} s"


def size_text(size: float) -> str:
    """A number of bytes in the unit that suits it: 512 B, 1.5 KiB, 20 MiB."""
    for unit in _SIZES[:-1]:
        if size < 1000:
            return f"{size:.1f} {unit}" if size < 10 and unit != "B" else f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} {_SIZES[-1]}"
