"""What counts of a stage's output: the result, the rows of metrics, and what is moved aside.

Every attempt writes a new segment of rows after each of its checkpoints. The rows of a stage that
is not done are those up to its newest checkpoint: what a lost attempt wrote later is not read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.config.atomic_files import sync_directory
from fope_lab.store.checkpoint import Checkpoint, changed_files, incomplete_files
from fope_lab.store.records import StagePaths, as_row, read_done


def completion(paths: StagePaths) -> dict[str, Any] | None:
    """The content of DONE if all that it names is whole, else None.

    The digests of small files are compared; of the checkpoint's files the sizes.
    """
    done = read_done(paths.done)
    return None if done is None or damage(paths, done) else done


def damage(paths: StagePaths, done: Mapping[str, Any]) -> list[str]:
    """The files that DONE names and that are missing or damaged; DONE itself if it is a copy."""
    if (stage := done["stage"]) != paths.name:
        return [f"{paths.done.name} (of {stage})"]
    damaged = changed_files(paths.folder, done["files"])
    if result_file(paths, done) is None:
        damaged.append(paths.result.name)
    if name := done["checkpoint"]:
        folder = f"{paths.checkpoints.name}/{name}"
        damaged += [f"{folder}/{file}" for file in incomplete_files(paths.folder / folder)]
    return list(dict.fromkeys(damaged))


def result_file(paths: StagePaths, done: Mapping[str, Any]) -> Path | None:
    """The file with the result that belongs to DONE, or None if it is damaged or missing."""
    for path in (paths.result, paths.result_of(done["token"])):
        with contextlib.suppress(OSError):
            if hashlib.sha256(path.read_bytes()).hexdigest() == done["result_sha256"]:
                return path
    return None


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


@dataclass(frozen=True)
class Row:
    """The metrics of a step, logged at `timestamp`, which is in milliseconds since the epoch."""

    step: int
    timestamp: int
    values: dict[str, float]


def own_segments(paths: StagePaths, token: int, step: int | None = None) -> list[str]:
    """The segments of an attempt that it began before its checkpoint of `step`, if given."""
    found = sorted(paths.metrics.glob(f"{token:04d}-*.jsonl"))
    before = [p for p in found if step is None or int(p.stem.partition("-")[2]) < step]
    return [f"{paths.metrics.name}/{path.name}" for path in before]


def durable_rows(
    paths: StagePaths, done: Mapping[str, Any] | None, checkpoint: Checkpoint | None
) -> list[Row]:
    """All rows of a finished stage, else those up to its newest complete `checkpoint`."""
    if done is not None:
        names = [name for name in done["files"] if name.startswith(f"{paths.metrics.name}/")]
    else:
        names = list(checkpoint.segments()) if checkpoint else []
    return [row for name in names for row in _rows(paths.folder / name)]


def _rows(path: Path) -> Iterator[Row]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        row = None
        with contextlib.suppress(ValueError, RecursionError):
            row = as_row(json.loads(line))
        if row is None:
            break  # a killed process was writing this line, or it is damaged
        yield Row(row["step"], row["time"], row["values"])
