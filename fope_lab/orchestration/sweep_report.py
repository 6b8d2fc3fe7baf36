"""The report of a sweep, with links to its runs in MLflow."""

from __future__ import annotations

from pathlib import Path

from fope_lab.report import Report, RunLinks, build_report
from fope_lab.report.files import WrittenReport, write_report
from fope_lab.report.provenance import provenance
from fope_lab.store import Store
from fope_lab.store.sweep_files import REPORTS
from fope_lab.sweep import Sweep
from fope_lab.sweep.notes import keep_file
from fope_lab.tracking import Tracker, run_link


def report_of_sweep(sweep: Sweep, store: Store, tracking_uri: str | None) -> Report:
    """The results so far of a sweep. Raises TrackingError for a URI that is not MLflow's."""
    return tracked_report(sweep, store, Tracker(store.root, tracking_uri))


def tracked_report(sweep: Sweep, store: Store, tracker: Tracker) -> Report:
    """The results so far of a sweep; no MLflow server is contacted."""
    ids, experiment = tracker.run_ids(sweep), tracker.experiment_id(sweep)
    addresses = {key: run_link(tracker.uri, str(experiment), run) for key, run in ids.items()}
    links = RunLinks(ids, addresses, tracker.view_links(sweep.name))
    return build_report(sweep, store, provenance=provenance(sweep, store), links=links)


def keep_report(report: Report, store: Store) -> WrittenReport:
    """Write the report into its folder in the store, and from which file it came."""
    written = write_report(report, store.root / REPORTS / report.name)
    keep_file(report.name, Path(report.path), store)
    return written
