"""What is moved away from a stage's folder, so that the stage can run again. Nothing is deleted."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from fope_lab.atomic_files import sync_directory
from fope_lab.store.paths import StagePaths
from fope_lab.store.problems import StoreError


def output_of(paths: StagePaths) -> list[Path]:
    """All that a stage has written and that counts."""
    written = (
        paths.checkpoints,  # first: without its checkpoint, a stage is not done
        paths.metrics,
        *paths.results(),
        paths.done,
    )
    return [path for path in written if path.exists()]


def misplaced_folders(paths: StagePaths) -> list[Path]:
    """The folders that are where a stage has files."""
    return [p for p in (paths.request, paths.progress, *paths.results(), paths.done) if p.is_dir()]


def move_aside(paths: StagePaths, output: Sequence[Path], token: int) -> Path:
    """Move files and folders to where attempt `token` puts them; returns that folder."""
    folder = paths.set_aside(token)
    if output:
        folder.mkdir(parents=True, exist_ok=True)
    for path in output:
        with contextlib.suppress(FileNotFoundError):  # a result that has got its final name
            os.rename(path, folder / path.name)
    sync_directory(paths.folder)
    return folder


def require_folder(path: Path) -> None:
    """Raises StoreError if a stage's folder, or the one that it is in, is a file."""
    for place in (path, path.parent):
        if place.exists() and not place.is_dir():
            raise StoreError(f"{place} is a file, and must be a folder; move it away")
