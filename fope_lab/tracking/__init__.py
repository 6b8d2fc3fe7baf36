"""MLflow as a projection of the store: data is uploaded from the store and never read back.

An experiment is a sweep. Each of its stages that has started is a flat run, identified by its key
and its store. Only durable rows are uploaded, with the step and the timestamp that they have in the
store. MLflow ignores a point that it already has and can't delete a point, so uploading the same
points again is harmless. Every call may be interrupted anywhere and repeated.

    view.py     what MLflow shows of a sweep: a pure function of the plan and the store
    ledger.py   which stages are uploaded, and what `sync` needs without the sweep file
    uris.py     which URIs are allowed, and how to show one without its password
    database.py makes the tables of a SQLite database, and keeps a damaged one apart
    server.py   an MLflow server or database, its experiments and runs
    tracker.py  uploads what MLflow lacks
    thread.py   does so every few seconds during a run, and waits no longer than patience.py says
    ui.py       serves MLflow's pages, and makes links to them
"""

from fope_lab.tracking.errors import TrackingError
from fope_lab.tracking.thread import TrackingThread, sync
from fope_lab.tracking.tracker import Tracker
from fope_lab.tracking.ui import metric_link, run_link, serve
from fope_lab.tracking.uris import is_server

__all__ = [
    "Tracker",
    "TrackingError",
    "TrackingThread",
    "is_server",
    "metric_link",
    "run_link",
    "serve",
    "sync",
]
