"""Sends the report of a sweep and its pictures: the run `summary`."""

from __future__ import annotations

from collections.abc import Mapping

from fope_lab.store import Row
from fope_lab.tracking.experiment import Experiment
from fope_lab.tracking.kept_report import FIGURES, KeptReport
from fope_lab.tracking.points import points
from fope_lab.tracking.summary_description import description_tags, summary_description
from fope_lab.tracking.view import SUMMARY, summary_tags


def send_report(sweep: str, experiment: Experiment, kept: KeptReport) -> None:
    """Send the report that the store has of the sweep, if MLflow has another or none."""
    run = experiment.runs.get(SUMMARY)
    if run is not None:
        run.log((), summary_tags(sweep), {})  # a user may have edited them
        if run.tags.get("content") == kept.digest():
            return
    report = kept.content()
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


def send_pictures(experiment: Experiment, kept: KeptReport) -> None:
    """Send the pictures of the report, if MLflow has others or none."""
    run, pictures = experiment.runs.get(SUMMARY), kept.pictures()
    if run is None or pictures is None or run.tags.get("pictures") == pictures.of:
        return
    for file in pictures.files:
        run.add_file(file, FIGURES)
    run.keep_files(FIGURES, {file.name for file in pictures.files})
    run.log((), {"pictures": pictures.of}, {})


def send_description(
    text: str, experiment: Experiment, kept: KeptReport, pages: Mapping[str, str]
) -> None:
    """Describe the sweep of the report, if MLflow has it, as long as no user has done so.

    `text` is the description of the sweep, and `pages` has the pages of its prepared views.
    """
    run = experiment.runs.get(SUMMARY)
    if run is None:
        return
    page = f"#/experiments/{experiment.experiment_id}/runs/{run.run_id}"
    written = summary_description(text, kept.metrics(), pages, page)
    run.log((), description_tags(written, run.tags), {})
