"""Checkpoints of a stage: finding them, and telling whether they are whole.

The manifest of a checkpoint is written last. It has the digests of the checkpoint's files, and of
the segments of metrics that were complete when it was saved: the rows up to its step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from fope_lab.atomic_files import files_below, sync_file, write_json
from fope_lab.store.digests import (
    FileDigests,
    changed_files,
    changed_sizes,
    digest_of_digests,
    digests_of,
)
from fope_lab.store.paths import StagePaths
from fope_lab.store.problems import StoreError
from fope_lab.store.records import read_manifest
from fope_lab.store.time_taken import WorkTime

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

    def segments(self) -> FileDigests | None:
        """The segments of metrics up to this checkpoint, in order, by their paths from the stage.

        None for a checkpoint that does not say so: it is damaged, or an old version wrote it.
        """
        manifest = read_manifest(self.path / MANIFEST)
        return None if manifest is None else manifest.get("metrics")

    def is_partial(self) -> bool:
        """Whether the checkpoint is there to go on from alone, and no output of the stage."""
        return (read_manifest(self.path / MANIFEST) or {}).get("partial") is True

    def work_time(self) -> WorkTime | None:
        """The time that the work up to this checkpoint took, over all attempts but without what
        was lost. None if the checkpoint does not say so, as for `segments`."""
        manifest = read_manifest(self.path / MANIFEST) or {}
        if "seconds" not in manifest or "cpu_seconds" not in manifest:
            return None
        return WorkTime(manifest["seconds"], manifest["cpu_seconds"])


def list_checkpoints(paths: StagePaths) -> list[Checkpoint]:
    """All checkpoint folders of a stage, whole or not, newest attempt and step first."""
    named = (Checkpoint.parse(path) for path in paths.checkpoints.glob("[0-9]*-[0-9]*"))
    found = [checkpoint for checkpoint in named if checkpoint is not None]
    return sorted(found, key=lambda checkpoint: (checkpoint.token, checkpoint.step), reverse=True)


def newest_complete(paths: StagePaths) -> Checkpoint | None:
    """The newest checkpoint of a stage that is complete, or None."""
    return next((c for c in list_checkpoints(paths) if is_complete(c.path)), None)


def newest_intact(paths: StagePaths) -> Checkpoint | None:
    """The newest checkpoint of a stage that is intact, and whose rows of metrics are, or None.

    This reads every byte of it.
    """
    return next((c for c in list_checkpoints(paths) if not damage_of_checkpoint(paths, c)), None)


def is_complete(path: Path) -> bool:
    """Whether the manifest is whole and every file that it lists has the size that it states."""
    return not incomplete_files(path)


def incomplete_files(path: Path) -> list[str]:
    """The files of a checkpoint that are missing or have another size than was written, by name.

    Without a whole manifest, that is the manifest.
    """
    manifest = read_manifest(path / MANIFEST)
    return [MANIFEST] if manifest is None else changed_sizes(path, manifest["files"])


def damaged_files(path: Path) -> list[str]:
    """The files of a checkpoint that do not hold what was written, by name.

    Without a whole manifest, that is the manifest. This reads every byte, as `changed_files` does.
    """
    manifest = read_manifest(path / MANIFEST)
    return [MANIFEST] if manifest is None else changed_files(path, manifest["files"])


def damage_of_checkpoint(paths: StagePaths, checkpoint: Checkpoint) -> list[str]:
    """The damaged files of a checkpoint and of its rows of metrics, by their paths from the stage.

    A manifest that was copied from another stage is one of them. This reads every byte.
    """
    folder = checkpoint.path.relative_to(paths.folder)
    manifest = read_manifest(checkpoint.path / MANIFEST) or {}
    if (stage := manifest.get("stage", paths.name)) != paths.name:
        return [f"{folder / MANIFEST} (of {stage})"]
    own = [str(folder / name) for name in damaged_files(checkpoint.path)]
    return own + changed_files(paths.folder, checkpoint.segments() or {})


def content_digest(path: Path, *, without: Collection[str] = ()) -> str | None:
    """One SHA-256 for the files of a checkpoint, as its manifest lists them, but for some names.

    None if the manifest is damaged or missing.
    """
    manifest = read_manifest(path / MANIFEST)
    if manifest is None:
        return None
    return digest_of_digests({n: e for n, e in manifest["files"].items() if n not in without})


def require_intact(path: Path) -> None:
    """Raises StoreError if a checkpoint is damaged. A folder without a manifest is not of a store,
    and passes."""
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
    work_time: WorkTime | None,
    *,
    partial: bool = False,
) -> None:
    """Make the files in `directory` durable, then list them in its manifest.

    `stage` is the kind and the key of the stage, and `metrics` are the segments that hold the rows
    up to this checkpoint. `work_time` is what the work up to it took, if that is known. A `partial`
    checkpoint is no output of the stage.
    """
    names = []
    for path in files_below(directory):
        sync_file(path)
        names.append(str(path.relative_to(directory)))
    files = digests_of(directory, names)
    manifest = {"stage": stage, "step": step, "token": token, "files": files}
    more = {} if work_time is None else asdict(work_time)
    more |= {"partial": True} if partial else {}
    write_json(directory / MANIFEST, manifest | {"metrics": dict(metrics), **more})
