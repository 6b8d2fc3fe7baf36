"""Tells whether MLflow has all of a finished sweep, without asking MLflow.

That is so if nothing has changed on either side since an upload that found nothing to send: neither
what the store would send, nor one byte of the database. Nothing of the kind is known of a server.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
from pathlib import Path

from fope_lab.provenance.package_code import package_digest
from fope_lab.store import Status, Store
from fope_lab.sweep.made_by import ChangesSince
from fope_lab.tracking.database import SIDE_FILES
from fope_lab.tracking.ledger import Ledger
from fope_lab.tracking.view import Outline, timeline

HEADER = 100
"""The bytes of the header of a SQLite database, which count its transactions."""


def store_mark(outline: Outline, store: Store, ledger: Ledger, changes: ChangesSince) -> str | None:
    """A digest of all that decides what an upload of a sweep sends; None if a stage is unfinished.

    It covers the code and the records of what was sent, too.
    """
    folders = {stage.key: store.folder(stage.kind, stage.key) for stage in outline.stages}
    if not all(folder.paths.done.exists() for folder in reversed(folders.values())):
        return None  # without reading the others, since a run asks every few seconds
    stages = {stage.key: stage for stage in outline.stages}
    parts: list[object] = [
        [package_digest(), importlib.metadata.version("mlflow"), ledger.store_id()],
        [ledger.plan_digest(outline.name), dict(ledger.pages(outline.name))],
    ]
    for key, folder in folders.items():
        now, record = timeline(folder), ledger.run(outline.name, stages[key].kind, key)
        if now is None or now.status is not Status.DONE or record is None:
            return None
        parts.append([key, repr(now), repr(folder.time_taken()), file_mark(folder.paths.done)])
        parts.append([folder.makers(), changes.of(stages[key], stages)])
        parts.append(dataclasses.asdict(record))
    kept = ledger.kept_report(outline.name)
    pictures = kept.pictures()
    parts.append([kept.digest(), kept.cells_mark(), pictures and pictures.of])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def file_mark(path: Path) -> tuple[int, int] | None:
    """What tells a file from any other of its name without reading it, or None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def database_mark(file: Path | None) -> str | None:
    """What changes with every transaction of a SQLite database; None for no such database.

    None, too, while there is a journal: a transaction is under way, or was cut off.
    """
    if file is None or any(Path(f"{file}{end}").exists() for end in SIDE_FILES):
        return None
    try:
        with file.open("rb") as database:
            header = database.read(HEADER)
        status = file.stat()
    except OSError:
        return None
    place = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
    return f"{place} {hashlib.sha256(header).hexdigest()}"
