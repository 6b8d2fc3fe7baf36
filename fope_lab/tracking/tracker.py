"""Uploads what MLflow lacks of a store.

MLflow can't delete points. So a run with points that the store no longer has, because its newest
checkpoint was damaged and the work was repeated, is deleted and created again.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fope_lab.store import Row, Status, Store
from fope_lab.sweep.graph import Sweep
from fope_lab.sweep.made_by import ChangesSince
from fope_lab.sweep.plan import Plan
from fope_lab.tracking.causes import as_tracking_error, concerns_one_run, one_line
from fope_lab.tracking.errors import TrackingError, UnreachableError
from fope_lab.tracking.ledger import Ledger, RunRecord
from fope_lab.tracking.parameters import parameters
from fope_lab.tracking.points import Digest, Point, not_finite, points, result_rows
from fope_lab.tracking.server import (
    ENTRIES_PER_BATCH,
    SUMMARY,
    Experiment,
    Run,
    Server,
    artifact_folder,
)
from fope_lab.tracking.uris import checked_uri, default_uri, shown
from fope_lab.tracking.view import (
    Outline,
    StageOutline,
    code_tags,
    metric_path,
    pictures,
    summary_tags,
    tags,
    timeline,
)

MLFLOW_STATUS = {
    Status.DONE: "FINISHED",
    Status.FAILED: "FAILED",
    Status.RUNNING: "RUNNING",
    Status.INTERRUPTED: "KILLED",
    Status.DAMAGED: "KILLED",
}


class Tracker:
    """Brings MLflow up to date with one store.

    `uri` is an MLflow server (http, https, databricks) or a database that this process writes
    itself; None means the SQLite database `mlflow.db` in the store, which is made again from the
    store if it can't be read. Several threads and processes may use the same store, because only
    one at a time writes an experiment. Raises TrackingError for a URI that is not MLflow's.

    `uri` may hold a password; `address` is the same without it.
    """

    def __init__(self, store_root: str | Path, uri: str | None = None) -> None:
        self._store = Store.open(store_root)
        self.uri = default_uri(self._store.root) if uri is None else checked_uri(uri)
        self.address = shown(self.uri)
        self._ledger = Ledger(self._store, self.uri)
        artifacts = artifact_folder(self._store.root)
        self._server = Server(self.uri, artifacts, self._store.root / "tracking", ours=uri is None)
        self._arguments = ["--store", str(self._store.root)]
        self._arguments += [] if uri is None else ["--tracking-uri", self.address]
        self.patience = self._server.patience
        self._filled: str | None = None
        self._changes = ChangesSince(self._store)
        self._outlines: dict[str, tuple[Plan, Outline]] = {}

    def record(self, plan: Plan) -> None:
        """Record the stages of a plan in the store: `sync` uploads those that have started, and
        `fope-lab store prune` keeps them. Raises TrackingError if the store can't be written."""
        self._outline(plan)

    def project(self, plan: Plan) -> None:
        """Bring the plan's experiment up to date: every stage that has started, and its report.

        Makes a single request if nothing has changed since the last call. Raises TrackingError
        after sending everything that could be sent.
        """
        self._project(self._outline(plan))
        if self.replaced != self._filled:
            self.sync()  # the new database lacks the other sweeps, too

    def sync(self) -> list[str]:
        """Bring every sweep that is recorded in this store up to date; returns their names.

        Needs no sweep file, and also fills an empty MLflow. Raises TrackingError after trying every
        sweep, or at once if MLflow can't be used.
        """
        before = self.replaced
        names = self._sync()
        if self.replaced != before:  # by one of them, and those before it are to be sent again
            names = self._sync()
        self._filled = self.replaced
        return names

    @property
    def replaced(self) -> str | None:
        """The line that says that the store's database could not be read, if it was replaced."""
        return self._server.replaced

    def keep_report(
        self, plan: Plan, files: Sequence[Path], numbers: Mapping[tuple[str, ...], float]
    ) -> None:
        """Save these files and numbers in the store, as the report that MLflow is to have.

        The next `project` or `sync` uploads them as the experiment's run `summary`. Each number
        becomes a metric, named by the parts of its path; the step of the metrics is the number of
        the report's revision. Raises TrackingError if the store can't be written.
        """
        outline = self._outline(plan)
        metrics = {metric_path(path): value for path, value in numbers.items()}
        with _recorded(outline.name):
            self._ledger.keep_report(outline.name, files, metrics)

    def without_report(self) -> list[str]:
        """The names of the recorded sweeps of which the store has no report that is whole."""
        names = [outline.name for outline in self._ledger.outlines()]
        return [name for name in names if self._ledger.report(name) is None]

    @property
    def sync_command(self) -> str:
        """The command that finishes the upload; a password is left for the user to fill in."""
        return f"fope-lab sync {shlex.join(self._arguments)}"

    def silence(self) -> str:
        """What to say of an MLflow that has not answered in time."""
        return self._server.silence()

    def run_ids(self, sweep: Sweep) -> dict[str, str]:
        """The ids of MLflow runs by stage key, for stages that have a run; contacts no server."""
        return {key: record.run_id for key, record in self._records(sweep).items()}

    def experiment_id(self, sweep: Sweep) -> str | None:
        """The id of the sweep's experiment, or None before its first run; contacts no server."""
        return next((record.experiment_id for record in self._records(sweep).values()), None)

    def _outline(self, plan: Plan) -> Outline:
        known = self._outlines.get(plan.sweep.name)
        if known is None or known[0] is not plan:
            with _recorded(plan.sweep.name):
                known = self._outlines[plan.sweep.name] = (plan, self._ledger.save_outline(plan))
        return known[1]

    def _records(self, sweep: Sweep) -> dict[str, RunRecord]:
        records = {s.key: self._ledger.run(sweep.name, s.kind, s.key) for s in sweep.stages}
        return {key: record for key, record in records.items() if record is not None}

    def _sync(self) -> list[str]:
        problems = [
            f"the record {path} is damaged: the next run of its sweep writes it again. Remove"
            f" {path.parent} to forget the sweep."
            for path in self._ledger.damaged()
        ]
        outlines = self._ledger.outlines()
        for outline in outlines:
            try:
                self._project(outline)
            except UnreachableError:
                raise
            except TrackingError as error:
                problems.append(str(error))
        if problems:
            raise TrackingError("\n".join(dict.fromkeys(problems)))
        return [outline.name for outline in outlines]

    def _project(self, outline: Outline) -> None:
        try:
            try:
                problems = self._upload(outline)
            except Exception as error:
                self._server.forget(outline.name)  # it is not known how much of it arrived
                if not self._server.mended(error):
                    raise
                problems = self._upload(outline)
        except Exception as error:
            raise as_tracking_error(error, self.uri) from error
        if problems:
            self._server.forget(outline.name)
            raise TrackingError("\n".join(f"{outline.name}, {line}" for line in problems))

    def _upload(self, outline: Outline) -> list[str]:
        """Send what MLflow lacks of a sweep; returns what is wrong with single runs."""
        problems: list[str] = []
        with self._ledger.one_writer(outline.name) as same_writer:
            if not same_writer:
                self._server.forget(outline.name)
            experiment = self._server.experiment(
                outline.name, outline.description, self._store_id()
            )
            stages = {stage.key: stage for stage in outline.stages}
            for stage in outline.stages:
                with self._collected(problems, stage.label):
                    self._project_stage(outline, experiment, stage, stages)
            with self._collected(problems, SUMMARY):
                self._project_report(outline.name, experiment)
        return problems

    def _store_id(self) -> str:
        """The id of the store. If the store has lost it, a run that is recorded still has it."""
        known = self._ledger.store_id()
        if known is None:
            outlines = self._ledger.outlines()
            records = (self._ledger.run(o.name, s.kind, s.key) for o in outlines for s in o.stages)
            found = (self._server.store_of(record.run_id) for record in records if record)
            known = self._ledger.set_store_id(next(filter(None, found), None))
        return known

    @contextlib.contextmanager
    def _collected(self, problems: list[str], name: str) -> Iterator[None]:
        """Collect an error that affects a single run, so that the other runs are still uploaded."""
        try:
            yield
        except Exception as error:
            if not concerns_one_run(error):
                raise
            problems.append(f"{name}: {one_line(error, self.uri)}")

    def _project_stage(
        self,
        outline: Outline,
        experiment: Experiment,
        stage: StageOutline,
        stages: Mapping[str, StageOutline],
    ) -> None:
        folder = self._store.folder(stage.kind, stage.key)
        mark, settled = _mark(folder.paths.done), experiment.settled.get(stage.key)
        is_done = settled is not None and settled.status is Status.DONE
        if is_done and mark == experiment.marks.get(stage.key):
            return
        now = timeline(folder)
        if now is None or now == settled:
            return
        params = parameters(stage, stages)
        wanted = tags(outline, stage, now) | {"store": experiment.store_id}
        wanted |= code_tags(folder.makers(), self._changes.of(stage, stages))
        run = experiment.runs.get(stage.key)
        known = self._ledger.run(outline.name, stage.kind, stage.key)
        complete = now.ended if now.status is Status.DONE else None
        if run is None or complete is None or known != _record(experiment, run, complete):
            rows = folder.rows()
            if complete is not None:
                rows = [*rows, *result_rows(folder.result() or {}, rows, complete)]
            if text := not_finite(rows):
                wanted["non_finite"] = text
            run = run or experiment.create(stage.key, wanted, now.started)
            start = _start(run, rows)
            if start is None:
                run, start = experiment.replace(stage.key, wanted, now.started), RunStart()
            for missing, row, digest in _batches(rows, start):
                run.log(missing, wanted, params)
                run.sent = row, digest
            if complete is not None:
                for picture in pictures(now):
                    run.add_file(picture)
        run.log((), wanted, params)  # a complete run may need new tags, from a changed sweep file
        for tag in ("error", "changed_since"):  # it was tried again, or a change was taken back
            if tag not in wanted:
                run.remove_tag(tag)
        run.set_status(MLFLOW_STATUS[now.status], now.ended)
        record = _record(experiment, run, complete)
        self._ledger.set_run(outline.name, stage.kind, stage.key, record)
        experiment.settled[stage.key], experiment.marks[stage.key] = now, mark

    def _project_report(self, sweep: str, experiment: Experiment) -> None:
        run = experiment.runs.get(SUMMARY)
        if run is not None and run.tags.get("content") == self._ledger.report_content(sweep):
            return
        report = self._ledger.report(sweep)
        if report is None:
            return
        if run is None:
            wanted = summary_tags(sweep) | {"store": experiment.store_id}
            run = experiment.create(SUMMARY, wanted, report.time)
        # The revision is saved before the points, so that two reports never share a step.
        revision = int(run.tags.get("revision", "0")) + 1
        run.log((), {"revision": str(revision)}, {})
        run.log(points(Row(revision, report.time, dict(report.metrics))), {}, {})
        for file in report.files:
            run.add_file(file)
        run.log((), {"content": report.content}, {})
        run.set_status("FINISHED", report.time)


def _mark(path: Path) -> tuple[int, int] | None:
    """What tells a file from any other of its name without reading it, or None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


@dataclass(frozen=True)
class RunStart:
    """Where to continue an upload: at `row`, without the points in `present`."""

    row: int = 0
    present: frozenset[tuple[str, int, int]] = frozenset()


def _record(experiment: Experiment, run: Run, complete: int | None) -> RunRecord:
    return RunRecord(experiment.experiment_id, run.run_id, complete)


def _start(run: Run, rows: Sequence[Row]) -> RunStart | None:
    """Where to continue uploading `rows`, or None if the run has points that `rows` do not have.

    Asks the server, unless this process sent the run's points and `rows` still begin with them.
    """
    if run.sent is not None:
        count, digest = run.sent
        if count <= len(rows) and Digest(rows[:count]).hex() == digest:
            return RunStart(count)
    present = run.points()
    known = {point[:3] for row in rows for point in points(row)}
    return RunStart(0, frozenset(present)) if present <= known else None


def _batches(rows: Sequence[Row], start: RunStart) -> Iterator[tuple[list[Point], int, str]]:
    """Yield the missing points in batches of one request each.

    A batch comes with the number of rows that the run has after it, and their digest. There is
    always at least one batch; the last batch may be empty.
    """
    digest = Digest(rows[: start.row])
    batch: list[Point] = []
    for index in range(start.row, len(rows)):
        missing = [p for p in points(rows[index]) if p[:3] not in start.present]
        if batch and len(batch) + len(missing) > ENTRIES_PER_BATCH:
            yield batch, index, digest.hex()
            batch = []
        batch += missing
        digest.add(rows[index])
    yield batch, len(rows), digest.hex()


@contextlib.contextmanager
def _recorded(sweep: str) -> Iterator[None]:
    """Turn an error of the store, such as a full disk, into a TrackingError."""
    try:
        yield
    except OSError as error:
        raise TrackingError(f"the store can't record {sweep} for MLflow: {error}") from error
