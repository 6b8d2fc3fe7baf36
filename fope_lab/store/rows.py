"""Rows of metrics: which segments hold those that count, and what they say.

Every attempt writes a new segment after each of its checkpoints. The rows that count are those of
the attempt, after those up to the checkpoint that it resumed from. What a lost attempt wrote after
its last checkpoint is not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fope_lab.store.checkpoint import Checkpoint
from fope_lab.store.lease import Attempts
from fope_lab.store.paths import StagePaths
from fope_lab.store.records import as_row


@dataclass(frozen=True)
class Row:
    """The metrics of a step, logged at `timestamp`, which is in milliseconds since the epoch."""

    step: int
    timestamp: int
    values: dict[str, float]


def own_segments(paths: StagePaths, token: int, step: int | None = None) -> list[str]:
    """The segments of an attempt, or those that it began before its checkpoint of `step`."""
    found = sorted(paths.metrics.glob(f"{token:04d}-*.jsonl"))
    before = [p for p in found if step is None or int(p.stem.partition("-")[2]) < step]
    return [f"{paths.metrics.name}/{path.name}" for path in before]


def segments_up_to(paths: StagePaths, checkpoint: Checkpoint | None) -> list[str]:
    """The segments with the rows up to a checkpoint, by their paths from the stage's folder."""
    if checkpoint is None:
        return []
    segments = checkpoint.segments()
    if segments is not None:
        return list(segments)
    origin = _origin(paths, checkpoint.token)
    before = segments_up_to(paths, origin)
    return [*before, *own_segments(paths, checkpoint.token, checkpoint.step)]


def durable_rows(
    paths: StagePaths, done: Mapping[str, Any] | None, checkpoint: Checkpoint | None
) -> list[Row]:
    """All rows of a finished stage, else those up to its newest complete `checkpoint`."""
    if done is None:
        names = segments_up_to(paths, checkpoint)
    elif "files" in done:
        names = [name for name in done["files"] if name.startswith(f"{paths.metrics.name}/")]
    else:  # an old version finished it
        before = segments_up_to(paths, _origin(paths, done["token"]))
        names = [*before, *own_segments(paths, done["token"])]
    return [row for name in names for row in _rows(paths.folder / name)]


def _origin(paths: StagePaths, token: int) -> Checkpoint | None:
    """The checkpoint that attempt `token` resumed from, which may be gone by now."""
    record = Attempts(paths.folder).record(token)
    origin = record.details.get("resumed_from") if record else None
    if origin is None or origin["token"] >= token:
        return None  # attempts were removed, so their tokens came again
    path = paths.checkpoint(origin["token"], origin["step"])
    return Checkpoint(path, origin["token"], origin["step"])


def _rows(path: Path) -> Iterator[Row]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        row = as_row(_json_of(line))
        if row is None:
            break  # a killed process was writing this line, or it is damaged
        yield Row(row["step"], row["time"], row["values"])


def _json_of(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
