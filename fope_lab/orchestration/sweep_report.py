"""The report of a sweep, with links to its runs in MLflow."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from fope_lab.planning.forecast import forecast_seconds
from fope_lab.report.build import Report, RunLinks, build_report, provenance
from fope_lab.report.files import REPORT_FILES, WrittenReport, named_panels, write_report
from fope_lab.report.results.frame import results_frame
from fope_lab.store.root import Store, StoreSnapshot
from fope_lab.sweep.graph import Stage, Sweep
from fope_lab.sweep.plan import keep_file
from fope_lab.tracking.tracker import Tracker
from fope_lab.tracking.uris import run_link


def report_of_sweep(sweep: Sweep, store: Store, tracking_uri: str | None) -> Report:
    """The results so far of a sweep. Raises TrackingError for a URI that is not MLflow's."""
    return tracked_report(sweep, store, Tracker(store.root, tracking_uri))


def tracked_report(sweep: Sweep, store: Store, tracker: Tracker) -> Report:
    """The results so far of a sweep; no MLflow server is contacted."""
    runs = tracker.runs(sweep)
    ids = {key: run.run_id for key, run in runs.items()}
    experiment = next((run.experiment_id for run in runs.values()), "")
    addresses = {key: run_link(tracker.uri, experiment, run) for key, run in ids.items()}
    links = RunLinks(ids, addresses, tracker.view_links(sweep.name))
    snapshot = StoreSnapshot.of(store)
    forecasts = functools.cache(lambda: forecast_seconds(sweep.stages, snapshot))

    def seconds(stages: Sequence[Stage]) -> float | None:
        """The seconds of the stages in all, from what was measured; None if one is unknown."""
        times = [forecasts().get(stage.key) for stage in stages]
        known = [time for time in times if time is not None]
        return sum(known) if times and len(known) == len(times) else None

    source = provenance(sweep, snapshot)
    return build_report(sweep, snapshot, provenance=source, links=links, seconds=seconds)


def report_artifacts(report: Report, written: WrittenReport) -> dict[str, bytes]:
    """The files that MLflow gets of a report: itself, its numbers as a table, and its figures."""
    files = {name: (written.page.parent / name).read_bytes() for name in REPORT_FILES}
    table = results_frame(report.stages).to_csv(index=False)
    figures = named_panels(report).items()
    drawn = {f"figures/{name}.svg": panel.svg().encode() for name, panel in figures}
    return files | {"results.csv": table.encode()} | drawn


def keep_report(report: Report, store: Store) -> WrittenReport:
    """Write the report into its folder in the store, and from which file it came."""
    written = write_report(report, store.report(report.name))
    keep_file(report.name, Path(report.path), store)
    return written
