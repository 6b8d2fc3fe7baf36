"""MLflow as a projection of the store: data is uploaded from the store and never read back.

An experiment is a sweep. Each of its stages that has started is a flat run, identified by its key
and its store. Only durable rows are uploaded, with their step and timestamp in the store. MLflow
ignores a point that it already has, so every call may be interrupted anywhere and repeated.

    outline.py, names.py     a sweep as the store records it, and the names of its runs
    ledger.py                what is uploaded, and the last report
    stage_run.py             what the run of a stage says besides its metrics: pure functions
    prepared_views.py        the saved views that open on the figure
    uris.py                  which URIs are allowed, links to pages, and no passwords
    client.py                MLflow's client, its errors, and how long to wait for it
    database.py, server.py   a whole SQLite database; a server or a database
    experiment.py            an experiment and its runs, as the server has them
    upload.py, tracker.py    what is sent of a sweep, and when
    ui.py                    serves MLflow's pages
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
