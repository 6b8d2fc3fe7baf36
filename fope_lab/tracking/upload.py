"""Sends what an experiment lacks of a sweep: the runs of its stages, its report and its views.

The metrics are the rows that a stage logs, then its result. MLflow's lists and its compare page
know the last value of a metric alone. So each point of a curve over lengths is also a metric of its
own: perplexity_by_length at 64 is perplexity/64, too. MLflow stores an infinity as 1.8e308, which
flattens every chart that shows it. So a value that is not finite becomes NaN, a gap in the line,
and the run's tag `non_finite` names the value.

MLflow can't delete points. So a run with points that the store no longer has, because its newest
checkpoint was damaged and the work was repeated, is deleted and created again.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fope_lab.config.roles import MODEL
from fope_lab.stages.metric import LENGTH, WORDS, DamagedResultError, ResultRecord
from fope_lab.store.checkpoint import Checkpoint
from fope_lab.store.folder import StageFolder
from fope_lab.store.root import Store
from fope_lab.store.state import Status
from fope_lab.store.writer import Row
from fope_lab.sweep.plan import ChangesSince
from fope_lab.tracking import stage_run
from fope_lab.tracking.experiment import Experiment, Point, Run
from fope_lab.tracking.ledger import Ledger, RunRecord
from fope_lab.tracking.outline import Outline, StageOutline
from fope_lab.tracking.prepared_views import prepared_views, tag_name
from fope_lab.tracking.stage_run import (
    CURRENT,
    EDITION,
    ERRORS,
    SUMMARY,
    TAG_LENGTH,
    Timeline,
    valid_name,
)

LISTED_AXES = (LENGTH.name, WORDS.name)
"""The axes whose curves have few points; those over positions have too many for a list."""
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
        if experiment.outline != outline:  # all runs are looked at again
            experiment.settled, experiment.outline = {}, outline

    def stage(self, stage: StageOutline) -> None:
        """Bring the run of a stage up to date, if it was ever started (for Tracker.project)."""
        settled = self._experiment.settled
        folder = self._store.folder(stage.kind, stage.key)
        known, mark = settled.get(stage.key), _mark(folder.paths.done)
        if known and known[0].status is Status.DONE and known[1] == mark:
            return
        now = stage_run.timeline(folder)
        if now is None or (known and known[0] == now):
            return
        run = self._send(stage, folder, now)
        run.set_status(MLFLOW_STATUS[now.status], now.ended)
        self._ledger.set_run(self._outline.name, stage.kind, stage.key, self._record(run, now))
        settled[stage.key] = now, mark

    def _send(self, stage: StageOutline, folder: StageFolder, now: Timeline) -> Run:
        experiment = self._experiment
        params = stage_run.parameters(stage, self._stages)
        wanted = stage_run.tags(self._outline, stage, now) | {"store": experiment.store_id}
        wanted |= stage_run.made_tags(folder, self._changes.of(stage, self._stages))
        run = experiment.runs.get(stage.key)
        known = self._ledger.run(self._outline.name, stage.kind, stage.key)
        if run is None or now.completed is None or known != self._record(run, now):
            rows = _all_rows(folder, now)
            if text := not_finite(rows):
                wanted["non_finite"] = text
            run = run or experiment.create(stage.key, wanted, now.started)
            logged = [point for row in rows for point in points(row, stage.curves)]
            if not run.points() <= {point.id for point in logged}:
                run = experiment.replace(stage.key, wanted, now.started)
            present = run.points()
            run.log([point for point in logged if point.id not in present], wanted, params)
            run.add_datasets(stage_run.datasets(stage, self._stages, self._store))
            if now.completed is not None:
                run.forget_points()
                for picture in sorted(now.checkpoint.glob("*.svg")) if now.checkpoint else ():
                    run.add_file(picture)
            log = folder.paths.log
            if now.completed is not None and folder.attempts.any_failed():
                run.add_text(log.name, f"{OVERCOME}\n\n{_end_of(log)}")
            elif now.failed is not None and known != self._record(run, now):
                run.add_text(log.name, _end_of(log))
        run.log((), wanted, params)  # a complete run may need new tags, from a changed sweep file
        # It was tried again, or a change was taken back.
        for tag in ("error", "changed_since", stage_run.TIME):
            if tag not in wanted:
                run.remove_tag(tag)
        if now.completed is not None:
            made = now.checkpoint and Checkpoint.parse(now.checkpoint.absolute())
            if made and stage_run.leaves_model(stage):
                params = stage_run.model_parameters(stage, self._stages)
                experiment.log_model(run, made, stage.kind, params)
            self._link_model(stage, folder, now, run)
        return run

    def _record(self, run: Run, now: Timeline) -> RunRecord:
        """What to record of a run to which all has been sent that the store has now."""
        return RunRecord(self._experiment.experiment_id, run.run_id, now.completed, now.failed)

    def _link_model(
        self, stage: StageOutline, folder: StageFolder, now: Timeline, run: Run
    ) -> None:
        """Link the run of a finished stage to the model that it read, with what it measured."""
        parent = self._experiment.runs.get(stage.parents.get(MODEL, ""))
        model = (self._experiment.models or {}).get(parent.run_id) if parent else None
        is_new = model is not None and run.tags.get(stage_run.MODEL_ID) != model
        if model and is_new and stage_run.reads_same_model(stage, self._stages, self._store):
            rows = [] if stage_run.leaves_model(stage) else _all_rows(folder, now)
            measured = measured_points(rows, stage.curves)
            data = stage_run.datasets(stage, self._stages, self._store)
            run.add_read_model(model, measured, data[0] if data else None)

    def editions(self) -> None:
        """Tag each run of the store with whether the sweep, as it is now, still has it."""
        present = {SUMMARY, *self._stages}
        for key, run in self._experiment.runs.items():
            run.log((), {EDITION: CURRENT if key in present else stage_run.EARLIER}, {})

    def report(self) -> None:
        """Send the report that the store has of the sweep, if MLflow has another or none."""
        sweep, experiment = self._outline.name, self._experiment
        run, report = experiment.runs.get(SUMMARY), self._ledger.report(sweep)
        if run is not None:
            run.log((), stage_run.summary_tags(sweep), {})  # a user may have edited them
        if report is None or (run is not None and run.tags.get("content") == report.content):
            return
        if not self._ledger.is_whole(sweep):
            return
        if run is None:
            wanted = stage_run.summary_tags(sweep) | {"store": experiment.store_id}
            run = experiment.create(SUMMARY, wanted, report.time)
        # The revision is saved before the points, so that two reports never share a step.
        revision = int(run.tags.get("revision", "0")) + 1
        run.log((), {"revision": str(revision)}, {})
        run.log(points(Row(revision, report.time, dict(report.metrics)), {}), {}, {})
        for name in report.files:
            folder, _, _ = name.rpartition("/")
            run.add_file(self._ledger.folder(sweep) / name, folder or None)
        run.keep_files("figures", {Path(name).name for name in report.files})
        run.log((), {"content": report.content}, {})
        run.set_status("FINISHED", report.time)

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


def _all_rows(folder: StageFolder, now: Timeline) -> list[Row]:
    """The durable rows of a stage, and what the result of a finished one says beyond them."""
    rows = folder.rows()
    if now.completed is None:
        return rows
    return [*rows, *result_rows(folder.result() or {}, rows, now.completed)]


def points(row: Row, curves: Mapping[str, str]) -> list[Point]:
    """The metrics of a row as points; a value that is not finite becomes NaN.

    `curves` has the axis of each metric that is a curve.
    """
    found = []
    for name, value in row.values.items():
        number = float(value) if math.isfinite(value) else math.nan
        found.append(Point(valid_name(name), row.step, row.timestamp, number))
        if (axis := curves.get(name)) in LISTED_AXES:
            listed = f"{name.removesuffix(f'_by_{axis}')}/{row.step}"
            found.append(Point(valid_name(listed), 0, row.timestamp, number))
    return found


def result_rows(content: Mapping[str, Any], rows: Sequence[Row], timestamp: int) -> list[Row]:
    """The numbers of a result.json that `rows` lack, as rows with the given timestamp in ms.

    These are 95 % intervals, NAME_ci95_low and NAME_ci95_high, and numbers that are known only at
    the end. The step is the x of a curve, else the last one that the rows have for the name, or 0.
    """
    try:
        measured = ResultRecord.parse(content).metrics
    except DamagedResultError:
        return []
    last_steps = {name: row.step for row in rows for name in row.values}
    present = {(name, row.step) for row in rows for name in row.values}
    by_step: dict[int, dict[str, float]] = {}
    for measurement in measured:
        step = measurement.x
        if step is None:
            step = last_steps.get(measurement.name, 0)
        columns = dict(measurement.row)
        if measurement.ci95 is not None:
            ends = (f"{measurement.name}_ci95_low", f"{measurement.name}_ci95_high")
            columns |= zip(ends, measurement.ci95, strict=True)
        for name, value in columns.items():
            if (name, step) not in present:
                by_step.setdefault(step, {})[name] = value
    return [Row(step, timestamp, values) for step, values in by_step.items()]


def measured_points(rows: Iterable[Row], curves: Mapping[str, str]) -> list[Point]:
    """What an evaluation says of its model: the last value of each metric but whole curves.

    A value that is not finite is left out, because MLflow stores NaN of a model as 0. The machine's
    load is left out, too.
    """
    last = {point.name: point for row in rows for point in points(row, curves)}
    whole = tuple(f"{curve}{end}" for curve in curves for end in ("", *ERRORS))
    return [
        point
        for name, point in last.items()
        if name not in whole and not name.startswith("system/") and math.isfinite(point.value)
    ]


def not_finite(rows: Iterable[Row]) -> str | None:
    """The values that are not finite, such as "perplexity_by_length=inf at 8192", or None."""
    found = [
        f"{name}={value} at {row.step}"
        for row in rows
        for name, value in row.values.items()
        if not math.isfinite(value)
    ]
    return ", ".join(found)[:TAG_LENGTH] or None


def _mark(path: Path) -> tuple[int, int] | None:
    """The identity of a file without reading it, or None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


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
