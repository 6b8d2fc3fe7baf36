"""A sweep's report from its plan, the store, and the links to MLflow."""

from __future__ import annotations

from pathlib import Path

from fope_lab.report import Report, build_report
from fope_lab.store import Store
from fope_lab.store.provenance import provenance
from fope_lab.sweep import Plan
from fope_lab.tracking import Tracker, run_link


def build_report_of(planned: Plan, store: Store, tracker: Tracker) -> Report:
    """The results so far; asks no server."""
    run_ids = tracker.run_ids(planned)
    experiment = tracker.experiment_id(planned)
    links = {
        key: run_link(tracker.uri, experiment, run_id)
        for key, run_id in run_ids.items()
        if experiment is not None
    }
    return build_report(
        planned,
        store,
        run_ids=run_ids,
        links=links,
        provenance=provenance(planned.sweep.path),
    )


def write_report(report: Report, store: Store) -> Path:
    """Write the report into its folder in the store; returns the page's path."""
    return report.write(store.root / "reports" / report.name)
