"""What the store records about MLflow, so that `sync` needs no sweep file and skips what is done.

    <stage folder>/tracking/<hash of URI and sweep>.json   its run, and whether it is complete
    <store>/tracking/id                                    distinguishes the runs of two stores
    <store>/tracking/<hash of URI and sweep>.lock          one writer at a time
    <store>/tracking/<hash of URI and sweep>.views.json    the pages of its prepared views
    <store>/tracking/<hash of URI and sweep>.settled.json  with what MLflow needed nothing, see
                                                           settled.py
    <store>/tracking/sweeps/<name>/                        the last plan, and the last report, see
                                                           kept_report.py

If any of these is lost or damaged, nothing else is: the server can be asked which points it has and
which store a run is of, and the next run records its plan and its report again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from fope_lab.atomic_files import create_exclusive, read_json, sha256_file, write_atomic, write_json
from fope_lab.store import Store
from fope_lab.sweep.plan import Plan
from fope_lab.tracking.errors import TrackingError
from fope_lab.tracking.kept_report import KeptReport
from fope_lab.tracking.locks import locked
from fope_lab.tracking.uris import shown
from fope_lab.tracking.view import Outline

PLAN = "plan.json"
STORE_ID = re.compile(r"[0-9a-f]{32}")
FORM = 3
"""The form of what is sent. Raise it when a complete run is to get more than before: `sync` then
sends what is missing to the runs that an older version completed: files, and metrics under names
that it did not know. Tags and parameters need no new form."""


@dataclass(frozen=True)
class RunRecord:
    """The MLflow run of a stage.

    `complete` is the time (ms since 1970) at which the stage finished, or None until everything
    about it is uploaded. The progress of an incomplete upload is not recorded: a response may be
    lost after the points arrived, so only the server knows. `failed` is the time of the failure
    whose log is uploaded, if it failed. `form` is the FORM of the version that uploaded it; a
    version that knew of none had the form 1.
    """

    experiment_id: str
    run_id: str
    complete: int | None
    failed: int | None = None
    form: int = FORM


class Ledger:
    """The records in `store` about the MLflow at `uri`."""

    def __init__(self, store: Store, uri: str) -> None:
        self._store, self._uri = store, uri
        self._root = store.root / "tracking"
        self._writer = uuid.uuid4().bytes

    def store_id(self) -> str | None:
        """The id that tells this store from others in MLflow; None if it is missing or damaged."""
        try:
            text = (self._root / "id").read_text(encoding="utf-8")
        except (OSError, ValueError):
            return None
        return text if STORE_ID.fullmatch(text) else None

    def set_store_id(self, known: str | None) -> str:
        """Record the id `known`, or a new one, and return what is recorded."""
        path, text = self._root / "id", known or uuid.uuid4().hex
        if not create_exclusive(path, text) and self.store_id() is None:
            write_atomic(path, text)
        return self.store_id() or text

    @contextlib.contextmanager
    def one_writer(self, sweep: str) -> Iterator[bool]:
        """Hold the sweep's lock; yields whether this ledger was also the last to hold it.

        If it was not, another writer may have changed what the server has. The operating system
        releases the lock when its process ends. Raises TrackingError if the lock stays taken for
        a while.
        """
        text = f"an upload of {sweep} to MLflow is still running, here or in another process"
        busy = TrackingError(text)
        with locked(self._root / f"{self._hash(sweep)}.lock", busy) as file:
            file.seek(0)
            same = file.read() == self._writer
            if not same:
                file.truncate(0)
                file.write(self._writer)
                file.flush()
            yield same

    def run(self, sweep: str, kind: str, key: str) -> RunRecord | None:
        """The recorded run of a stage in the sweep's experiment, or None."""
        raw = read_json(self._record_file(sweep, kind, key))
        if not isinstance(raw, dict):
            return None
        experiment, run = raw.get("experiment_id"), raw.get("run_id")
        times = [raw.get(name) for name in ("complete", "failed")]
        form = raw.get("form", 1)
        if not (isinstance(experiment, str) and isinstance(run, str) and isinstance(form, int)):
            return None
        complete, failed = (time if isinstance(time, int) else None for time in times)
        return RunRecord(experiment, run, complete, failed, form)

    def set_run(self, sweep: str, kind: str, key: str, record: RunRecord) -> None:
        """Record the run of a stage in the sweep's experiment."""
        if self.run(sweep, kind, key) != record:
            write_json(self._record_file(sweep, kind, key), dataclasses.asdict(record))

    def pages(self, sweep: str) -> Mapping[str, str]:
        """The recorded pages of a sweep's prepared views, by their names."""
        raw = read_json(self._root / f"{self._hash(sweep)}.views.json")
        if not isinstance(raw, dict) or not all(isinstance(page, str) for page in raw.values()):
            return {}
        return raw

    def set_pages(self, sweep: str, pages: Mapping[str, str]) -> None:
        """Record the pages of a sweep's prepared views."""
        if self.pages(sweep) != pages:
            write_json(self._root / f"{self._hash(sweep)}.views.json", dict(pages))

    def save_outline(self, plan: Plan) -> Outline:
        """Save the outline of a plan and return it; `cached` stays as it was first recorded."""
        path = self._sweep_folder(plan.sweep.name) / PLAN
        before = _read_outline(path)
        cached = {stage.key: stage.cached for stage in before.stages} if before else {}
        outline = Outline.of(plan, cached)
        if outline != before:
            write_atomic(path, outline.json())
        return outline

    def plan_digest(self, sweep: str) -> str | None:
        """The SHA-256 of the recorded plan of a sweep, or None if there is none."""
        try:
            return sha256_file(self._sweep_folder(sweep) / PLAN)
        except OSError:
            return None

    def settled(self, sweep: str) -> object:
        """What `set_settled` recorded last of the sweep, or None."""
        return read_json(self._root / f"{self._hash(sweep)}.settled.json")

    def set_settled(self, sweep: str, store: str, database: str) -> None:
        """Record with which marks of the store and the database an upload had nothing to send."""
        record = {"store": store, "database": database}
        write_json(self._root / f"{self._hash(sweep)}.settled.json", record)

    def outlines(self) -> list[Outline]:
        """The outlines of all sweeps that are recorded in this store, but the damaged ones."""
        return recorded_sweeps(self._store)

    def damaged(self) -> list[Path]:
        """The recorded plans that can't be read; the next run of the sweep writes them again."""
        return damaged_plans(self._store)

    def kept_report(self, sweep: str) -> KeptReport:
        """The last report of a sweep that the store keeps for MLflow."""
        return KeptReport(self._sweep_folder(sweep))

    def _sweep_folder(self, sweep: str) -> Path:
        return self._root / "sweeps" / quote(sweep, safe="")

    def _record_file(self, sweep: str, kind: str, key: str) -> Path:
        return self._store.folder(kind, key).path / "tracking" / f"{self._hash(sweep)}.json"

    def _hash(self, sweep: str) -> str:
        return hashlib.sha256(f"{shown(self._uri)}\n{sweep}".encode()).hexdigest()[:16]


def recorded_sweeps(store: Store) -> list[Outline]:
    """The outlines of all sweeps that ran in a store, but those whose record is damaged."""
    found = (_read_outline(path) for path in _plans(store))
    return [outline for outline in found if outline is not None]


def damaged_plans(store: Store) -> list[Path]:
    """The recorded plans of a store that can't be read."""
    return [path for path in _plans(store) if _read_outline(path) is None]


def _plans(store: Store) -> list[Path]:
    """Where the plans of the sweeps are, of which a store has anything."""
    folders = sorted((store.root / "tracking" / "sweeps").glob("*/"))
    return [folder / PLAN for folder in folders if any(folder.iterdir())]


def _read_outline(path: Path) -> Outline | None:
    """The outline in a file, or None if there is none that this version can read."""
    return Outline.read(read_json(path))
