"""What the store records about MLflow, so that `sync` needs no sweep file and skips what is done.

    <stage folder>/tracking/<hash of URI and sweep>.json   its run, and whether it is complete
    <store>/tracking/id                                    distinguishes the runs of two stores
    <store>/tracking/<hash of URI and sweep>.lock          one writer at a time
    <store>/tracking/<hash of URI and sweep>.views.json    the pages of its prepared views
    <store>/tracking/sweeps/<name>/plan.json               the last plan
    <store>/tracking/sweeps/<name>/report.meta.json        the last report; its files are beside it

If any of these is lost or damaged, nothing else is: the server can be asked which points it has and
which store a run is of, and the next run records its plan and its report again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import TypeAdapter

from fope_lab.config.atomic_files import create_exclusive, write_atomic, write_json
from fope_lab.store.root import Store
from fope_lab.store.source import package_digest
from fope_lab.sweep.plan import Plan
from fope_lab.tracking.database import locked
from fope_lab.tracking.errors import TrackingError
from fope_lab.tracking.outline import OUTLINE, Outline
from fope_lab.tracking.uris import shown

PLAN, REPORT = "plan.json", "report.meta.json"
T = TypeVar("T")
STORE_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class RunRecord:
    """The MLflow run of a stage.

    `complete` is when the stage finished (ms since 1970), once everything about it is uploaded, and
    `failed` when the failure was whose log is uploaded. How far an upload came is not recorded: the
    answer may be lost after the points arrived, so only the server knows.
    """

    experiment_id: str
    run_id: str
    complete: int | None
    failed: int | None


@dataclass(frozen=True)
class ReportRecord:
    """The last report of a sweep: its numbers by the names of metrics, and the names of its files.

    `content` is a digest of both, and `time` the moment (ms since 1970) at which it last changed.
    """

    content: str
    time: int
    metrics: Mapping[str, float]
    files: tuple[str, ...]


_RUN, _REPORT = TypeAdapter(RunRecord), TypeAdapter(ReportRecord)
_PAGES = TypeAdapter(dict[str, str])


class Ledger:
    """The records in `store` about the MLflow at `uri`."""

    def __init__(self, store: Store, uri: str) -> None:
        self._store, self._uri = store, uri
        self._root = store.root / "tracking"
        self._writer = uuid.uuid4().bytes

    def store_id(self) -> str | None:
        """This store's id in MLflow; None if it is missing or damaged."""
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

        If not, another writer may have changed what the server has. Raises TrackingError if the
        lock stays taken.
        """
        text = f"an upload of {sweep} to MLflow is still running, here or in another process"
        with locked(self._root / f"{self._hash(sweep)}.lock", TrackingError(text)) as file:
            file.seek(0)
            same = file.read() == self._writer
            if not same:
                file.truncate(0)
                file.write(self._writer)
                file.flush()
            yield same

    def run(self, sweep: str, kind: str, key: str) -> RunRecord | None:
        """The recorded run of a stage in the sweep's experiment, or None."""
        return _read(_RUN, self._run_file(sweep, kind, key))

    def set_run(self, sweep: str, kind: str, key: str, record: RunRecord) -> None:
        """Record the run of a stage in the sweep's experiment."""
        if self.run(sweep, kind, key) != record:
            write_json(self._run_file(sweep, kind, key), asdict(record))

    def mark(self, outline: Outline) -> str | None:
        """A digest that changes with anything that MLflow shows of a sweep whose stages are all
        done, without reading them; None while one is not, or a plug-in's file is gone."""
        folder = self.folder(outline.name)
        try:
            digest = hashlib.sha256(package_digest().encode())
        except OSError:
            return None
        for name in (PLAN, REPORT):
            with contextlib.suppress(OSError):
                digest.update((folder / name).read_bytes())
        for stage in outline.stages:
            try:
                done = self._store.folder(stage.kind, stage.key).paths.done.stat()
            except OSError:
                return None
            digest.update(f"{stage.key} {done.st_ino} {done.st_mtime_ns}\n".encode())
        return digest.hexdigest()

    def pages(self, sweep: str) -> Mapping[str, str]:
        """The recorded pages of a sweep's prepared views, by their names."""
        return _read(_PAGES, self._root / f"{self._hash(sweep)}.views.json") or {}

    def set_pages(self, sweep: str, pages: Mapping[str, str]) -> None:
        """Record the pages of a sweep's prepared views."""
        if self.pages(sweep) != pages:
            write_json(self._root / f"{self._hash(sweep)}.views.json", dict(pages))

    def save_outline(self, plan: Plan) -> Outline:
        """Save the outline of a plan and return it; `cached` stays as it was first recorded."""
        path = self.folder(plan.sweep.name) / PLAN
        before = _read(OUTLINE, path)
        cached = {stage.key: stage.cached for stage in before.stages} if before else {}
        outline = Outline.of(plan, cached)
        if outline != before:
            write_json(path, asdict(outline))
        return outline

    def report(self, sweep: str) -> ReportRecord | None:
        """The last report of a sweep; its files, which are in `folder(sweep)`, are not read."""
        return _read(_REPORT, self.folder(sweep) / REPORT)

    def is_whole(self, sweep: str) -> bool:
        """Whether the last report of a sweep is there, with all its files as they were."""
        report, folder = self.report(sweep), self.folder(sweep)
        try:
            files = {name: (folder / name).read_bytes() for name in report.files} if report else {}
        except OSError:
            return False
        return report is not None and _digest(report.metrics, files) == report.content

    def record_report(
        self, sweep: str, files: Mapping[str, bytes], metrics: Mapping[str, float]
    ) -> None:
        """Keep a report instead of the last one; an identical one keeps its time.

        `files` has the contents of its files by their paths, such as figures/loss.svg.
        """
        folder, content = self.folder(sweep), _digest(metrics, files)
        for name, data in files.items():
            write_atomic(folder / name, data)
        known = self.report(sweep)
        if known is None or known.content != content:
            now = time.time_ns() // 1_000_000
            record = ReportRecord(content, now, dict(metrics), tuple(files))
            write_json(folder / REPORT, asdict(record))
        for name in set(known.files if known else ()) - files.keys():
            (folder / name).unlink(missing_ok=True)

    def folder(self, sweep: str) -> Path:
        """The folder of a sweep's last plan and report."""
        return self._root / "sweeps" / quote(sweep, safe="")

    def _run_file(self, sweep: str, kind: str, key: str) -> Path:
        return self._store.root / f"{kind}/{key}/tracking/{self._hash(sweep)}.json"

    def _hash(self, sweep: str) -> str:
        return hashlib.sha256(f"{shown(self._uri)}\n{sweep}".encode()).hexdigest()[:16]


def recorded_sweeps(store: Store) -> list[Outline]:
    """The outlines of all sweeps that ran in a store, but those whose record is damaged."""
    found = (_read(OUTLINE, path) for path in _plans(store))
    return [outline for outline in found if outline is not None]


def damaged_plans(store: Store) -> list[Path]:
    """The recorded plans of a store that can't be read."""
    return [path for path in _plans(store) if _read(OUTLINE, path) is None]


def _plans(store: Store) -> list[Path]:
    """The plans of all sweeps that the store holds anything of."""
    folders = sorted((store.root / "tracking" / "sweeps").glob("*/"))
    return [folder / PLAN for folder in folders if any(folder.iterdir())]


def _read(kind: TypeAdapter[T], path: Path) -> T | None:
    """The record in a file, or None if it is missing or damaged."""
    try:
        return kind.validate_json(path.read_bytes())
    except (OSError, ValueError):
        return None


def _digest(metrics: Mapping[str, float], files: Mapping[str, bytes]) -> str:
    names: list[Any] = [sorted(metrics.items()), *files]
    digest = hashlib.sha256(json.dumps(names).encode())
    for content in files.values():
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()
