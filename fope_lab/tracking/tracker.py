"""Uploads what MLflow lacks of a store: of one sweep, or of all; in the background, or at once.

A dead MLflow never blocks a run.
"""

from __future__ import annotations

import contextlib
import math
import shlex
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fope_lab.store.root import Store, StoreSnapshot
from fope_lab.sweep.graph import Sweep
from fope_lab.sweep.plan import ChangesSince, Plan
from fope_lab.tracking.client import as_tracking_error, concerns_one_run, one_line, quiet_mlflow
from fope_lab.tracking.errors import TrackingError, UnreachableError
from fope_lab.tracking.ledger import Ledger, RunRecord, damaged_plans, recorded_sweeps
from fope_lab.tracking.outline import Outline
from fope_lab.tracking.server import MARK, Server
from fope_lab.tracking.stage_run import EDITION, SUMMARY, metric_path
from fope_lab.tracking.upload import Upload
from fope_lab.tracking.uris import PAGES, checked_uri, default_uri, page_link, shown

FIRST_PAUSE = 0.1
"""Seconds before the first upload: where the end comes at once, one upload is enough."""
LONGEST_PAUSE = 60.0
"""Seconds between two attempts while MLflow keeps failing."""


class Tracker:
    """Brings MLflow up to date with one store; several threads and processes may do so at once.

    `uri` is an MLflow server (http, https, databricks) or a database that this process writes
    itself; None means the SQLite database `mlflow.db` in the store. Raises TrackingError for a URI
    that is not MLflow's. `uri` may hold a password; `address` is the same without it.
    """

    def __init__(self, store_root: str | Path, uri: str | None = None) -> None:
        self.store = Store.open(store_root)
        self.given_uri = uri
        self.uri = default_uri(self.store.root) if uri is None else checked_uri(uri)
        self.address = shown(self.uri)
        self._ledger = Ledger(self.store, self.uri)
        self._server = Server(self.store.root, self.uri)
        self._arguments = ["--store", str(self.store.root)]
        self._arguments += [] if uri is None else ["--tracking-uri", self.address]
        self.patience, self.silence = self._server.patience, self._server.silence
        self._changes = ChangesSince(self.store)
        self._outlines: dict[str, tuple[Plan, Outline]] = {}

    def record(self, plan: Plan) -> None:
        """Record the stages of a plan in the store: `sync` uploads those that have started, and
        `fope-lab store prune` keeps them. Raises TrackingError if the store can't be written."""
        self._outline(plan)

    def project(self, plan: Plan | Outline) -> None:
        """Bring the plan's experiment up to date: every stage that has started, and its report.

        Makes a single request if nothing has changed since the last call, or since any call after
        which every stage was done. Raises TrackingError after sending everything that could be
        sent.
        """
        self._project(plan if isinstance(plan, Outline) else self._outline(plan))

    def sync(self) -> list[str]:
        """Bring every sweep that is recorded in this store up to date; returns their names.

        It asks for every run, also of a finished sweep: somebody may have deleted one. Raises
        TrackingError after trying every sweep, or at once if MLflow can't be used.
        """
        problems = [
            f"the record {path} is damaged: the next run of its sweep writes it again. Remove"
            f" {path.parent} to forget the sweep."
            for path in damaged_plans(self.store)
        ]
        outlines = recorded_sweeps(self.store)
        for outline in outlines:
            try:
                self._project(outline, every_run=True)
            except UnreachableError:
                raise
            except TrackingError as error:
                problems.append(str(error))
        if problems:
            raise TrackingError("\n".join(dict.fromkeys(problems)))
        return [outline.name for outline in outlines]

    def log_report(
        self, plan: Plan, files: Mapping[str, bytes], numbers: Mapping[tuple[str, ...], float]
    ) -> None:
        """Save a report in the store: the next `project` or `sync` sends it as the run `summary`.

        `files` has contents by paths, such as figures/loss.svg. Each number becomes a metric, named
        by the parts of its path, with the number of the report's revision as its step. Raises
        TrackingError if the store can't be written.
        """
        outline = self._outline(plan)
        metrics = {metric_path(path): value for path, value in numbers.items()}
        with _recorded(outline.name):
            self._ledger.record_report(outline.name, files, metrics)

    def has_report(self, sweep: str) -> bool:
        """Whether the store has a report of a sweep for MLflow, and it is whole."""
        return self._ledger.is_whole(sweep)

    @property
    def sync_command(self) -> str:
        """The command that finishes the upload; a password is left for the user to fill in."""
        return f"fope-lab sync {shlex.join(self._arguments)}"

    def runs(self, sweep: Sweep) -> dict[str, RunRecord]:
        """The MLflow run of each stage that has one, by the stage's key; contacts no server."""
        records = {s.key: self._ledger.run(sweep.name, s.kind, s.key) for s in sweep.stages}
        return {key: record for key, record in records.items() if record is not None}

    def view_links(self, sweep: str, ui: str = PAGES) -> dict[str, str]:
        """The addresses of the prepared views of a sweep, by name; on `ui` for a database."""
        pages = self._ledger.pages(sweep)
        return {name: page_link(self.uri, page, ui) for name, page in pages.items()}

    def sweeps(self) -> list[str]:
        """The names of the sweeps that are recorded in this store."""
        return [outline.name for outline in recorded_sweeps(self.store)]

    def _outline(self, plan: Plan) -> Outline:
        known = self._outlines.get(plan.sweep.name)
        if known is None or known[0] is not plan:
            with _recorded(plan.sweep.name):
                known = self._outlines[plan.sweep.name] = (plan, self._ledger.save_outline(plan))
        return known[1]

    def _project(self, outline: Outline, *, every_run: bool = False) -> None:
        snapshot = StoreSnapshot.of(self.store)
        changes = self._changes.within(snapshot)
        try:
            problems = self._upload(outline, snapshot, changes, every_run=every_run)
        except Exception as error:
            self._server.forget(outline.name)  # it is not known how much of it arrived
            raise as_tracking_error(error, self.uri) from error
        if problems:
            self._server.forget(outline.name)
            raise TrackingError("\n".join(f"{outline.name}, {line}" for line in problems))

    def _upload(
        self, outline: Outline, store: Store, changes: ChangesSince, *, every_run: bool
    ) -> list[str]:
        """Send what MLflow lacks of a sweep; returns the problems of single runs."""
        problems: list[str] = []
        with self._ledger.one_writer(outline.name) as same_writer:
            if not same_writer:
                self._server.forget(outline.name)
            mark = self._ledger.mark(outline)
            if mark and not every_run and self._server.mark(outline.name) == mark:
                return problems
            experiment = self._server.experiment(
                outline.name, outline.description, self._store_id()
            )
            upload = Upload(outline, experiment, store, self._ledger, changes)
            for stage in outline.stages:
                with self._collected(problems, stage.label):
                    upload.stage(stage)
            with self._collected(problems, SUMMARY):
                upload.report()
            with self._collected(problems, EDITION):
                upload.editions()
            with self._collected(problems, "prepared views"):
                upload.views()
            if mark and not problems:
                experiment.set_tag(MARK, mark)
        return problems

    def _store_id(self) -> str:
        """The id of the store. If the store has lost it, a run that is recorded still has it."""
        known = self._ledger.store_id()
        if known is None:
            outlines = recorded_sweeps(self.store)
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


@contextlib.contextmanager
def _recorded(sweep: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TrackingError(f"the store can't record {sweep} for MLflow: {error}") from error


class TrackingThread:
    """Uploads the progress of `plans` every `seconds` in the background (for uploads.py).

    While MLflow is down, slow or refuses a request, `last_error` says so and the pauses grow up to
    a minute; `unreachable` says why it can't be used at all.
    """

    def __init__(
        self, tracker: Tracker, plans: Sequence[Plan | Outline], seconds: float = 5.0
    ) -> None:
        self.last_error: str | None = None
        self.unreachable: str | None = None
        self._tracker, self._plans, self._seconds = tracker, tuple(plans), seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fope-lab-tracking", daemon=True)

    def start(self) -> None:
        """Import MLflow, which takes 2 s, and start the thread, which uploads in the background."""
        quiet_mlflow()
        self._thread.start()

    def flush(self, limit: float = math.inf) -> str | None:
        """Upload what the store has now and end the thread; returns why MLflow is not up to date.

        Waits as long as MLflow shows signs of life, but at most `limit` seconds. What still runs
        then ends with the process, and `sync` completes it.
        """
        self._stopping.set()
        if self._tracker.patience.wait(self._thread, limit):
            return self.last_error
        self.unreachable = self.last_error = self._tracker.silence()
        return self.last_error

    def _run(self) -> None:
        failures, pause = 0, FIRST_PAUSE
        while True:
            last = self._stopping.wait(pause)
            problems = self._upload()
            self.last_error = "\n".join(dict.fromkeys(problems)) or None
            if last or (self.unreachable and self._stopping.is_set()):
                return
            failures = failures + 1 if problems else 0
            pause = min(self._seconds * 2**failures, LONGEST_PAUSE)

    def _upload(self) -> list[str]:
        problems: list[str] = []
        self.unreachable = None
        for plan in self._plans:
            try:
                self._tracker.project(plan)
            except UnreachableError as error:
                self.unreachable = str(error)
                return [self.unreachable]
            except Exception as error:  # tracking must never stop the training
                problems.append(str(as_tracking_error(error, self._tracker.uri)))
        return problems


def sync(tracker: Tracker) -> list[str]:
    """Bring every sweep of the tracker's store up to date; returns their names.

    Waits as long as MLflow shows signs of life. Raises TrackingError if something is not up to
    date.
    """
    names: list[str] = []
    errors: list[TrackingError] = []

    def work() -> None:
        try:
            names.extend(tracker.sync())
        except Exception as error:
            errors.append(as_tracking_error(error, tracker.uri))

    thread = threading.Thread(target=work, name="fope-lab-sync", daemon=True)
    thread.start()
    if not tracker.patience.wait(thread):
        raise UnreachableError(tracker.silence())
    if errors:
        raise errors[0]
    return names
