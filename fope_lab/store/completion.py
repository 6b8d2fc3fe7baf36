"""How a stage is finished: its result and the marker DONE, which names all that belongs to it.

The result is written under the attempt's own name, then DONE is created exclusively with the
digests of everything that counts, and only then the result gets its final name. So whichever
attempt creates DONE owns both, however long another one stalls in between.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fope_lab.atomic_files import create_exclusive, sync_directory, write_atomic
from fope_lab.store.checkpoint import MANIFEST, Checkpoint, incomplete_files
from fope_lab.store.digests import FileDigests, changed_files, digests_of
from fope_lab.store.paths import StagePaths
from fope_lab.store.problems import LeaseLostError
from fope_lab.store.records import read_done


def completion(paths: StagePaths) -> dict[str, Any] | None:
    """The content of DONE if all that it names is whole, else None.

    The digests of small files are compared; of the checkpoint's files the sizes.
    """
    done = read_done(paths.done)
    return None if done is None or damage(paths, done) else done


def damage(paths: StagePaths, done: Mapping[str, Any]) -> list[str]:
    """The files that DONE names and that are missing or damaged, by their paths.

    A DONE that was copied from another stage is one of them.
    """
    if (stage := done.get("stage", paths.name)) != paths.name:
        return [f"{paths.done.name} (of {stage})"]
    damaged = changed_files(paths.folder, done.get("files", {}))
    if result_file(paths, done) is None:
        damaged.append(paths.result.name)
    if done["checkpoint"]:
        checkpoint = paths.checkpoints / done["checkpoint"]
        damaged += [
            str((checkpoint / name).relative_to(paths.folder))
            for name in incomplete_files(checkpoint)
        ]
    return list(dict.fromkeys(damaged))


def result_file(paths: StagePaths, done: Mapping[str, Any]) -> Path | None:
    """The file with the result that belongs to DONE, or None if it is damaged or missing."""
    for path in (paths.result, paths.result_of(done["token"])):
        with contextlib.suppress(OSError):
            if hashlib.sha256(path.read_bytes()).hexdigest() == done["result_sha256"]:
                return path
    return None


def complete(
    paths: StagePaths,
    token: int,
    result: Mapping[str, Any],
    *,
    checkpoint: Checkpoint | None,
    segments: FileDigests,
    details: Mapping[str, Any],
) -> None:
    """Write result.json and DONE for attempt `token`, which wrote the `segments` of metrics.

    `details` goes into DONE as well. Raises LeaseLostError if another attempt has finished the
    stage.
    """
    content = json.dumps(dict(result), indent=1, ensure_ascii=False).encode()
    own = paths.result_of(token)
    write_atomic(own, content)
    named = [paths.request]
    if checkpoint is not None:
        named.append(checkpoint.path / MANIFEST)
    files = digests_of(paths.folder, [str(path.relative_to(paths.folder)) for path in named])
    done = {
        "stage": paths.name,
        "token": token,
        **details,
        "checkpoint": checkpoint.path.name if checkpoint else None,
        "result_sha256": hashlib.sha256(content).hexdigest(),
        "files": {**files, **segments},
    }
    while not create_exclusive(paths.done, json.dumps(done, indent=1)):
        if completion(paths) is not None:
            own.unlink(missing_ok=True)
            raise LeaseLostError(f"{paths.folder} was finished by another attempt")
        paths.done.unlink(missing_ok=True)  # a late attempt wrote it, and its output is gone
    os.replace(own, paths.result)
    sync_directory(paths.folder)
