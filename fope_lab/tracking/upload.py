"""Sends what an experiment lacks of a sweep: the runs of its stages, its views and its report.

MLflow can't delete points. So a run with points that the store no longer has, because its newest
checkpoint was damaged and the work was repeated, is deleted and created again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fope_lab.store import Row, StageFolder, Status, Store
from fope_lab.sweep.made_by import ChangesSince
from fope_lab.tracking.description import Descriptions
from fope_lab.tracking.experiment import ENTRIES_PER_BATCH, Experiment, Run
from fope_lab.tracking.inputs import datasets
from fope_lab.tracking.ledger import FORM, Ledger, RunRecord
from fope_lab.tracking.parameters import parameters
from fope_lab.tracking.points import Digest, Point, not_finite, points, result_rows
from fope_lab.tracking.prepared_views import prepared_views, tag_name
from fope_lab.tracking.settled import file_mark
from fope_lab.tracking.upload_cells import CellUpload
from fope_lab.tracking.upload_models import ModelUpload
from fope_lab.tracking.upload_report import send_description, send_pictures, send_report
from fope_lab.tracking.view import (
    CURRENT,
    EARLIER,
    EDITION,
    SUMMARY,
    TIME,
    Outline,
    StageOutline,
    StageTimeline,
    code_tags,
    pictures,
    tags,
    time_tags,
    timeline,
)

MLFLOW_STATUS = {
    Status.DONE: "FINISHED",
    Status.FAILED: "FAILED",
    Status.RUNNING: "RUNNING",
    Status.INTERRUPTED: "KILLED",
    Status.DAMAGED: "KILLED",
}

LOG_BYTES = 200_000
"""How much of the log of a failed stage is sent; its end says why."""
OVERCOME = "An earlier attempt at this stage failed. Another one has finished it since."
"""The first line of the log of a finished stage that had failed before."""


class Upload:
    """Brings the `experiment` of a sweep up to date with the store."""

    def __init__(
        self,
        outline: Outline,
        experiment: Experiment,
        store: Store,
        ledger: Ledger,
        changes: ChangesSince,
    ) -> None:
        self._outline, self._experiment = outline, experiment
        self._store, self._ledger, self._changes = store, ledger, changes
        self._stages = {stage.key: stage for stage in outline.stages}
        self._descriptions = Descriptions(outline, experiment)
        self._models = ModelUpload(outline, experiment, store)
        experiment.start(outline)

    def stage(self, stage: StageOutline) -> None:
        """Bring the run of a stage up to date, if the stage was ever started."""
        experiment, folder = self._experiment, self._store.folder(stage.kind, stage.key)
        mark, settled = file_mark(folder.paths.done), experiment.settled.get(stage.key)
        is_done = settled is not None and settled.status is Status.DONE
        if is_done and mark == experiment.marks.get(stage.key):
            return
        now = timeline(folder)
        if now is None or now == settled:
            return
        run = self._sent(stage, folder, now)
        run.set_status(MLFLOW_STATUS[now.status], now.ended)
        record = _record(experiment, run, now)
        self._ledger.set_run(self._outline.name, stage.kind, stage.key, record)
        experiment.settled[stage.key], experiment.marks[stage.key] = now, mark

    def _sent(self, stage: StageOutline, folder: StageFolder, now: StageTimeline) -> Run:
        """Send all that the run of a stage lacks, but its status; returns the run."""
        experiment = self._experiment
        params = parameters(stage, self._stages)
        wanted = tags(self._outline, stage, now) | {"store": experiment.store_id}
        wanted |= code_tags(folder.makers(), self._changes.of(stage, self._stages))
        wanted |= time_tags(folder.time_taken())
        run = experiment.runs.get(stage.key)
        wanted |= self._descriptions.of_stage(stage)
        known = self._ledger.run(self._outline.name, stage.kind, stage.key)
        complete = now.ended if now.status is Status.DONE else None
        if run is None or complete is None or known != _record(experiment, run, now):
            rows = folder.rows()
            if complete is not None:
                rows = [*rows, *result_rows(folder.result() or {}, rows, complete)]
            if text := not_finite(rows):
                wanted["non_finite"] = text
            run = run or experiment.create(stage.key, wanted, now.started)
            start = self._start(stage, run, rows, known, complete)
            if start is None:
                run, start = experiment.replace(stage.key, wanted, now.started), RunStart()
            for missing, row, digest in _batches(rows, start):
                run.log(missing, wanted, params)
                run.sent = row, digest
            run.add_datasets(datasets(stage, self._stages, self._store))
            if complete is not None:
                _add_files(run, folder, now)
        if now.status is Status.FAILED and known != _record(experiment, run, now):
            run.add_text(folder.paths.log.name, _end_of(folder.paths.log))
        run.log((), wanted, params)  # a complete run may need new tags, from a changed sweep file
        # It was tried again, or a change was taken back.
        for tag in ("error", "changed_since", TIME):
            if tag not in wanted:
                run.remove_tag(tag)
        if complete is not None:
            self._models.stage(stage, folder, now, run)
        return run

    def _start(
        self,
        stage: StageOutline,
        run: Run,
        rows: Sequence[Row],
        known: RunRecord | None,
        complete: int | None,
    ) -> RunStart | None:
        """Where to continue uploading `rows`, or None if the run has points that `rows` lack."""
        if known is None or not _was_complete(known, self._experiment, run, complete):
            return _start(run, rows)
        # If this process is killed from here on, the run counts as half uploaded.
        half = replace(known, complete=None)
        self._ledger.set_run(self._outline.name, stage.kind, stage.key, half)
        return _new_names(run, rows)

    def cells(self) -> None:
        """Send the cells of the last report, if the store has them."""
        experiment, kept = self._experiment, self._ledger.kept_report(self._outline.name)
        mark = kept.cells_mark()
        if mark is None or experiment.cells == (mark, experiment.run_ids):
            return
        cells = kept.cells()
        if cells is not None:
            CellUpload(self._outline, experiment, cells).send()
            experiment.cells = mark, experiment.run_ids

    def editions(self) -> None:
        """Tag each run of the store with whether the sweep, as it is now, still has it."""
        present = {SUMMARY, *self._stages, *self._outline.cell_keys.values()}
        for key, run in self._experiment.runs.items():
            run.log((), {EDITION: CURRENT if key in present else EARLIER}, {})

    def report(self) -> None:
        """Send the report and the pictures that the store has of the sweep."""
        kept = self._ledger.kept_report(self._outline.name)
        send_report(self._outline.name, self._experiment, kept)
        send_pictures(self._experiment, kept)

    def views(self) -> None:
        """Prepare the experiment's views for the metrics that its runs have by now.

        A view that was prepared for an earlier edition of the sweep, and is empty now, is removed.
        """
        sweep = self._outline.name
        metrics = {key: run.metrics for key, run in self._experiment.runs.items()}
        views = prepared_views(self._outline, metrics)
        for view in views:
            self._experiment.set_tag(*view.tag(self._experiment.created))
        pages = {view.name: view.page(self._experiment.experiment_id) for view in views}
        for name in self._ledger.pages(sweep).keys() - pages.keys():
            self._experiment.remove_tag(tag_name(sweep, name))
        self._ledger.set_pages(sweep, pages)

    def description(self) -> None:
        """Describe the sweep in the run `summary`, with links to the views that it has by now."""
        sweep = self._outline.name
        pages, kept = self._ledger.pages(sweep), self._ledger.kept_report(sweep)
        send_description(self._outline.description, self._experiment, kept, pages)


def _record(experiment: Experiment, run: Run, now: StageTimeline) -> RunRecord:
    """What to record of a run to which all has been sent that the store has now."""
    complete = now.ended if now.status is Status.DONE else None
    failed = now.ended if now.status is Status.FAILED else None
    return RunRecord(experiment.experiment_id, run.run_id, complete, failed)


def _add_files(run: Run, folder: StageFolder, now: StageTimeline) -> None:
    """Add the figures of a finished stage, and its log if an earlier attempt failed."""
    for picture in pictures(now):
        run.add_file(picture)
    if folder.attempts.any_failed():
        run.add_text(folder.paths.log.name, f"{OVERCOME}\n\n{_end_of(folder.paths.log)}")


def _was_complete(known: RunRecord, experiment: Experiment, run: Run, complete: int | None) -> bool:
    """Whether a run has all that an older version sent of the stage as it is now."""
    if complete is None or known.form == FORM:
        return False
    here = (known.experiment_id, known.run_id) == (experiment.experiment_id, run.run_id)
    return here and known.complete == complete


def _new_names(run: Run, rows: Sequence[Row]) -> RunStart:
    """Where to continue with a run that lacks nothing but metrics of new names.

    So the history of each metric need not be read, which takes minutes for a thousand runs.
    """
    known = (point for row in rows for point in points(row) if point.name in run.metrics)
    return RunStart(0, frozenset(point[:3] for point in known))


def _end_of(log: Path) -> str:
    """The last LOG_BYTES of a log, and how many were left out before them; "" if there is none."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            left_out = max(0, size - LOG_BYTES)
            file.seek(left_out)
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return f"({left_out:,} bytes before this are only in the store.)\n{text}" if left_out else text


@dataclass(frozen=True)
class RunStart:
    """Where to continue an upload: at `row`, without the points in `present`."""

    row: int = 0
    present: frozenset[tuple[str, int, int]] = frozenset()


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
