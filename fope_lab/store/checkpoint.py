"""Checkpoints of a stage: their names, and whether they are whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fope_lab.atomic_files import read_json, sha256_file


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint directory, written by attempt `token` after `step` steps."""

    path: Path
    token: int
    step: int


def parse_checkpoint(path: Path) -> Checkpoint:
    token, step = path.name.split("-")
    return Checkpoint(path, int(token), int(step))


def is_complete(path: Path) -> bool:
    """Whether the manifest is there and every file it names has the size it says."""
    manifest = read_json(path / "manifest.json")
    if manifest is None:
        return False
    for name, entry in manifest["files"].items():
        try:
            if (path / name).stat().st_size != entry["size"]:
                return False
        except OSError:
            return False
    return True


def is_intact(path: Path) -> bool:
    """Complete, and every file's content is what was written (reads it all: for a resume)."""
    if not is_complete(path):
        return False
    manifest = read_json(path / "manifest.json")
    return manifest is not None and all(
        sha256_file(path / name) == entry["sha256"] for name, entry in manifest["files"].items()
    )
