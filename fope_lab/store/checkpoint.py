"""Checkpoints of a stage: finding them, and telling whether they are whole.

The manifest of a checkpoint is written last. It has the sizes and SHA-256 digests of the
checkpoint's files, and of the segments of metrics with the rows up to its step.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fope_lab.config.atomic_files import files_below, sha256_file, sync_file, write_json
from fope_lab.store.attempts import WorkTime
from fope_lab.store.records import StagePaths, StoreError, read_manifest

FileDigests = Mapping[str, Mapping[str, Any]]
"""The `size` in bytes and the `sha256` of files, by their paths from a folder."""


def digests_of(folder: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The digests of files below `folder`, in the order of `names`. Raises OSError."""
    digests = {}
    for name in names:
        status = os.stat(path := os.path.join(folder, name))
        digest = _sha256(path, status.st_size, status.st_mtime_ns)
        digests[name] = {"size": status.st_size, "sha256": digest}
    return digests


def forget_digests() -> None:
    """Have every file read again: damage may leave its size and time as they were."""
    _sha256.cache_clear()


def changed_files(folder: Path, digests: FileDigests) -> list[str]:
    """The files that are missing or no longer hold what was written.

    A file that was read before is read again if its size or time is another, or after
    `forget_digests`.
    """
    # Paths as strings: of a large sweep's store, tens of thousands of files are looked at.
    paths = ((name, os.path.join(folder, name)) for name in digests)
    return [name for name, path in paths if not _is_as_written(path, digests[name])]


def _is_as_written(path: str, entry: Mapping[str, Any]) -> bool:
    try:
        status = os.stat(path)
        return status.st_size == entry["size"] and (
            _sha256(path, status.st_size, status.st_mtime_ns) == entry["sha256"]
        )
    except OSError:
        return False


@functools.lru_cache(maxsize=65536)
def _sha256(path: str, size: int, written: int) -> str:
    return sha256_file(path)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


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

    def segments(self) -> FileDigests:
        """The segments of metrics up to this checkpoint, in order, by their paths from the stage;
        none of a damaged checkpoint."""
        return dict(self._manifest().get("metrics", {}))

    def is_partial(self) -> bool:
        """Whether the checkpoint is there to go on from alone, and no output of the stage."""
        return self._manifest().get("partial") is True

    def work_time(self) -> WorkTime:
        """The time of the work up to this checkpoint, over all attempts, without what was lost."""
        manifest = self._manifest()
        return WorkTime(manifest.get("seconds", 0.0), manifest.get("cpu_seconds", 0.0))

    def _manifest(self) -> dict[str, Any]:
        return read_manifest(self.path / MANIFEST) or {}


def list_checkpoints(paths: StagePaths) -> list[Checkpoint]:
    """All checkpoint folders of a stage, whole or not, newest attempt and step first."""
    named = (Checkpoint.parse(path) for path in paths.checkpoints.glob("[0-9]*-[0-9]*"))
    found = [checkpoint for checkpoint in named if checkpoint is not None]
    return sorted(found, key=lambda checkpoint: (checkpoint.token, checkpoint.step), reverse=True)


def newest_complete(paths: StagePaths) -> Checkpoint | None:
    """The newest checkpoint of a stage that is complete, or None."""
    return next((c for c in list_checkpoints(paths) if not incomplete_files(c.path)), None)


def newest_intact(paths: StagePaths) -> Checkpoint | None:
    """The newest checkpoint that is intact, with its rows of metrics; this reads every byte."""
    return next((c for c in list_checkpoints(paths) if not damage_of_checkpoint(paths, c)), None)


def incomplete_files(path: Path) -> list[str]:
    """The files that are missing or have another size than was written; without a whole manifest,
    the manifest."""
    manifest = read_manifest(path / MANIFEST)
    if manifest is None:
        return [MANIFEST]
    return [n for n, entry in manifest["files"].items() if _size(path / n) != entry["size"]]


def damaged_files(path: Path) -> list[str]:
    """The files that do not hold what was written; without a whole manifest, the manifest."""
    manifest = read_manifest(path / MANIFEST)
    return [MANIFEST] if manifest is None else changed_files(path, manifest["files"])


def damage_of_checkpoint(paths: StagePaths, checkpoint: Checkpoint) -> list[str]:
    """The damaged files of a checkpoint and of its rows of metrics, by their paths from the stage;
    a manifest of another stage is one of them."""
    folder = checkpoint.path.relative_to(paths.folder)
    manifest = read_manifest(checkpoint.path / MANIFEST)
    if manifest is not None and manifest["stage"] != paths.name:
        return [f"{folder / MANIFEST} (of {manifest['stage']})"]
    own = [str(folder / name) for name in damaged_files(checkpoint.path)]
    return own + changed_files(paths.folder, checkpoint.segments())


def content_digest(path: Path, *, without: Collection[str] = ()) -> str | None:
    """One SHA-256 for the files that a manifest lists, but for some; None without a manifest."""
    manifest = read_manifest(path / MANIFEST)
    if manifest is None:
        return None
    files = sorted((n, e["sha256"]) for n, e in manifest["files"].items() if n not in without)
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()


def require_intact(path: Path) -> None:
    """Raises StoreError if a checkpoint is damaged. A folder without a manifest passes."""
    if (path / MANIFEST).exists() and (damaged := damaged_files(path)):
        raise StoreError(f"the checkpoint {path} is damaged: {changed_since_written(damaged)}")


def changed_since_written(files: Iterable[str]) -> str:
    """What a message says of damaged files of a checkpoint."""
    return f"{', '.join(files)} changed after the checkpoint was written"


def write_manifest(
    directory: Path,
    stage: str,
    token: int,
    step: int,
    metrics: FileDigests,
    work_time: WorkTime,
    *,
    partial: bool = False,
) -> None:
    """Make the files in `directory` durable, then list them in its manifest.

    `stage` is the kind and the key, and `metrics` are the segments with the rows up to here.
    """
    written = list(files_below(directory))
    for path in written:
        sync_file(path)
    files = digests_of(directory, [str(path.relative_to(directory)) for path in written])
    manifest = {"stage": stage, "step": step, "token": token, "files": files}
    manifest |= {"metrics": dict(metrics), **asdict(work_time)}
    write_json(directory / MANIFEST, manifest | ({"partial": True} if partial else {}))
