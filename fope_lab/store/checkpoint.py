"""Checkpoints of a stage: finding them, and telling whether they are whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fope_lab.atomic_files import files_below, read_json, sha256_file, sync_file, write_json
from fope_lab.store.paths import StagePaths

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder that attempt `token` wrote after `step` steps."""

    path: Path
    token: int
    step: int

    @classmethod
    def parse(cls, path: Path) -> Checkpoint:
        """The checkpoint in `path`; its token and step are in the folder's name."""
        token, step = path.name.split("-")
        return cls(path, int(token), int(step))


def list_checkpoints(paths: StagePaths) -> list[Checkpoint]:
    """All checkpoint folders of a stage, whole or not, newest attempt and step first."""
    found = [Checkpoint.parse(path) for path in paths.checkpoints.glob("[0-9]*-[0-9]*")]
    return sorted(found, key=lambda checkpoint: (checkpoint.token, checkpoint.step), reverse=True)


def newest_complete(paths: StagePaths) -> Checkpoint | None:
    """The newest checkpoint of a stage that is complete, or None."""
    return next((c for c in list_checkpoints(paths) if is_complete(c.path)), None)


def newest_intact(paths: StagePaths) -> Checkpoint | None:
    """The newest checkpoint of a stage that is intact, or None. This reads every byte of it."""
    return next((c for c in list_checkpoints(paths) if is_intact(c.path)), None)


def is_complete(path: Path) -> bool:
    """Whether the manifest exists and every file that it lists has the size that it states."""
    manifest = read_json(path / MANIFEST)
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
    """Whether the checkpoint is complete and every file has the content that was written."""
    manifest = read_json(path / MANIFEST)
    return (
        manifest is not None
        and is_complete(path)
        and all(
            sha256_file(path / name) == entry["sha256"] for name, entry in manifest["files"].items()
        )
    )


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
