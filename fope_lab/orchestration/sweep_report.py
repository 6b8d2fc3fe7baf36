"""The report of a sweep, with links to its runs in MLflow."""

from __future__ import annotations

from pathlib import Path

from fope_lab.report import Report, build_report
from fope_lab.report.files import write_report
from fope_lab.report.render.links import RunLinks
from fope_lab.store import Store
from fope_lab.store.provenance import provenance
from fope_lab.sweep import Plan, Sweep, plan
from fope_lab.tracking import Tracker, run_link


def report_of_sweep(
    sweep: Sweep, store: Store, tracking_uri: str | None
) -> tuple[Report, RunLinks]:
    """The results so far of a sweep, and their links.

    Raises TrackingError for a URI that is not MLflow's.
    """
    return report_of_plan(plan(sweep, store), store, Tracker(store.root, tracking_uri))


def report_of_plan(planned: Plan, store: Store, tracker: Tracker) -> tuple[Report, RunLinks]:
    """The results so far of a planned sweep, and their links; no MLflow server is contacted."""
    report = build_report(planned, store, provenance=provenance(planned.sweep.path))
    run_ids = tracker.run_ids(planned)
    experiment = tracker.experiment_id(planned)
    if experiment is None:
        return report, RunLinks(run_ids)
    addresses = {key: run_link(tracker.uri, experiment, run) for key, run in run_ids.items()}
    return report, RunLinks(run_ids, addresses)


def keep_report(report: Report, links: RunLinks, store: Store) -> Path:
    """Write the report into its folder in the store; returns the path of the HTML page."""
    return write_report(report, store.root / "reports" / report.name, links)
