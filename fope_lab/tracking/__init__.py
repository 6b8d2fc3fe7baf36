"""MLflow as a projection of the store: what the folders say goes up, nothing ever comes down.

An experiment is a sweep; each of its stages that has begun is one flat run, found again by its key
and by the store that it lives in. Only durable rows are uploaded, with the step and the timestamp
that they were stored with: MLflow ignores a point that it has already and can take none back, so
exact repetition is what makes a replay harmless. Every call may be cut off anywhere, and repeated.

    view.py     what MLflow shows of a sweep: a pure function of plan and store
    ledger.py   how much of it went up, and what `sync` needs when the sweep file is gone
    server.py   an MLflow server or database; the only module that imports mlflow, and late
    tracker.py  brings the one in line with the other
    thread.py   does so every few seconds beside a run
    ui.py       MLflow's own pages: serving them, and links into them
"""

from fope_lab.tracking.errors import TrackingError
from fope_lab.tracking.thread import TrackingOutcome, TrackingThread
from fope_lab.tracking.tracker import Tracker
from fope_lab.tracking.ui import compare_link, metric_link, run_link, serve

__all__ = [
    "Tracker",
    "TrackingError",
    "TrackingOutcome",
    "TrackingThread",
    "compare_link",
    "metric_link",
    "run_link",
    "serve",
]
