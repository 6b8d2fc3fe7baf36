"""What a store holds: its stages with states, sizes and ages, and all that is known of one."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.housekeeping.known_stages import KnownStage, known_stages, parents_of, references
from fope_lab.provenance.checkout import Checkout
from fope_lab.store import StageState, Store
from fope_lab.store.attempts import AttemptRecord, TimeTaken, attempt_seconds
from fope_lab.store.folder import observe


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


@dataclass(frozen=True)
class StageDetails:
    """A stage with the names that sweeps gave it, what it was asked, its past and its relatives.

    `seconds` has the time of each attempt by its token, and `time_taken` that of a finished stage.
    `parents` has the key of each parent by role, or the folder of a checkpoint, and `children` the
    stages that refer to this one. `titles` names stages by key. `files` has the bytes of each file
    by its path from the folder, the largest first.
    """

    stage: KnownStage
    names: tuple[KnownStage, ...]
    state: StageState
    config: Mapping[str, Any]
    attempts: tuple[AttemptRecord, ...]
    seconds: Mapping[int, float]
    time_taken: TimeTaken | None
    parents: Mapping[str, str]
    children: tuple[str, ...]
    titles: Mapping[str, str]
    files: Mapping[Path, int]


def stage_details(store: Store, stage: KnownStage) -> StageDetails:
    """Look at everything that concerns a stage. This takes a moment if it is marked as running."""
    known = known_stages(store)
    folder = stage.folder
    [state] = observe([folder])
    asked = (folder.request() or {}).get("config")
    attempts = folder.attempts
    found = map(attempts.record, range(1, attempts.newest_token() + 1))
    records = tuple(record for record in found if record is not None)
    refers = references(store, known)
    files = files_with_sizes(folder.path) if folder.path.is_dir() else ()
    return StageDetails(
        stage=stage,
        names=tuple(one for one in known if one.key == stage.key and one.sweep),
        state=state,
        config=asked if isinstance(asked, dict) else {},
        attempts=records,
        seconds={record.token: attempt_seconds(attempts, record) for record in records},
        time_taken=folder.time_taken(),
        parents=parents_of(folder) or stage.parents,
        children=tuple(key for key, parents in refers.items() if stage.key in parents),
        titles={one.key: one.title for one in reversed(known)},
        files={
            path.relative_to(folder.path): size
            for path, size in sorted(files, key=lambda file: (-file[1], file[0]))
        },
    )


def made_with(attempt: AttemptRecord) -> list[str]:
    """The machine, device, driver and commit of an attempt, as far as it recorded them."""
    details = attempt.details
    made_by = details.get("made_by") or {}
    commit = Checkout.recorded(made_by)
    words = {
        "on": details.get("host"),
        "device": made_by.get("device"),
        "commit": None if commit is None else str(commit),
        "driver": attempt.owner,
    }
    return [f"{name} {value}" for name, value in words.items() if value]


_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")


def moment(seconds: float) -> str:
    """A time in seconds since the epoch, in UTC as in logs: 2026-01-31 09:05:00Z."""
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(seconds))


def age(since: float, now: float | None = None) -> str:
    """How long ago a time was, in the unit that suits it: 45 s, 12 min, 3 h, 5 d."""
    return span((time.time() if now is None else now) - since)


def span(seconds: float) -> str:
    """A duration in the largest unit of which it has two, else in seconds."""
    for unit, name in _UNITS:
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
