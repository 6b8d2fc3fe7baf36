"""MLflow as a projection of the store: data is uploaded from the store and never read back.

An experiment is a sweep. Each of its stages that has started is a flat run, identified by its key
and its store. Only durable rows are uploaded, with the step and the timestamp that they have in the
store. MLflow ignores a point that it already has and can't delete a point, so uploading the same
points again is harmless. Every call may be interrupted anywhere and repeated.

    outline.py         a sweep as the store records it, with names.py for the names of its runs
    ledger.py          what is uploaded, and the last report: what `sync` needs without the file
    stage_run.py       what the run of a stage says: a pure function of the outline and the store,
                       with points.py for its metrics
    prepared_views.py  the saved views that open on the figure
    uris.py            which URIs are allowed, links to pages, and no passwords
    client.py          MLflow's client, its errors, and how long to wait for it
    database.py        makes the tables of a SQLite database, and keeps a damaged one apart
    server.py          an MLflow server or database; experiment.py has an experiment and its runs
    upload.py          sends what an experiment lacks of a sweep
    tracker.py         does so for one sweep, or for all of a store, every few seconds during a run
    ui.py              serves MLflow's pages
"""

from fope_lab.tracking.errors import TrackingError
from fope_lab.tracking.tracker import Tracker, TrackingThread, sync
from fope_lab.tracking.ui import serve
from fope_lab.tracking.uris import is_server, run_link

__all__ = [
    "Tracker",
    "TrackingError",
    "TrackingThread",
    "is_server",
    "run_link",
    "serve",
    "sync",
]
