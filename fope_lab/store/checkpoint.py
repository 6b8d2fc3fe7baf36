"""Checkpoints of a stage: finding them, and telling whether they are whole."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.atomic_files import files_below, sha256_file, sync_file, write_json
from fope_lab.store.paths import StagePaths
from fope_lab.store.records import read_manifest

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder that attempt `token` wrote after `step` steps."""

    path: Path
    token: int
    step: int

    @classmethod
    def parse(cls, path: Path) -> Checkpoint | None:
        """The checkpoint in `path`, whose name has its token and step; None for another name."""
        token, _, step = path.name.partition("-")
        return cls(path, int(token), int(step)) if token.isdigit() and step.isdigit() else None


def list_checkpoints(paths: StagePaths) -> list[Checkpoint]:
    """All checkpoint folders of a stage, whole or not, newest attempt and step first."""
    named = (Checkpoint.parse(path) for path in paths.checkpoints.glob("[0-9]*-[0-9]*"))
    found = [checkpoint for checkpoint in named if checkpoint is not None]
    return sorted(found, key=lambda checkpoint: (checkpoint.token, checkpoint.step), reverse=True)


def newest_complete(paths: StagePaths) -> Checkpoint | None:
    """The newest checkpoint of a stage that is complete, or None."""
    return next((c for c in list_checkpoints(paths) if is_complete(c.path)), None)


def newest_intact(paths: StagePaths) -> Checkpoint | None:
    """The newest checkpoint of a stage that is intact, or None. This reads every byte of it."""
    return next((c for c in list_checkpoints(paths) if is_intact(c.path)), None)


def is_complete(path: Path) -> bool:
    """Whether the manifest is whole and every file that it lists has the size that it states."""
    manifest = read_manifest(path / MANIFEST)
    if manifest is None:
        return False
    return all(_size(path / name) == entry["size"] for name, entry in manifest.items())


def is_intact(path: Path) -> bool:
    """Whether the checkpoint is complete and every file has the content that was written."""
    return not damaged_files(path)


def damaged_files(path: Path) -> list[str]:
    """The files of a checkpoint that do not have the content that was written, by name.

    Without a whole manifest, that is the manifest. This reads every byte, but no file twice in a
    process unless it was written again in between.
    """
    manifest = read_manifest(path / MANIFEST)
    if manifest is None:
        return [MANIFEST]
    return [name for name, entry in manifest.items() if not _is_as_written(path / name, entry)]


def _is_as_written(path: Path, entry: Mapping[str, Any]) -> bool:
    try:
        status = path.stat()
        return status.st_size == entry["size"] and (
            _sha256(path, status.st_size, status.st_mtime_ns) == entry["sha256"]
        )
    except OSError:
        return False


@functools.lru_cache(maxsize=4096)
def _sha256(path: Path, size: int, written: int) -> str:
    return sha256_file(path)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def write_manifest(directory: Path, token: int, step: int) -> None:
    """Make the files in `directory` durable, then list them in its manifest."""
    files = {}
    for path in files_below(directory):
        sync_file(path)
        files[str(path.relative_to(directory))] = {
            "size": path.stat().st_size,
            "sha256": sha256_file(path),
        }
    write_json(directory / MANIFEST, {"step": step, "token": token, "files": files})
