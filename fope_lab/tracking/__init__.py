"""MLflow as a projection of the store: data is uploaded from the store and never read back.

An experiment is a sweep. Each of its stages that has started is a flat run, identified by its key
and its store. Only durable rows are uploaded, with the step and the timestamp that they have in the
store. MLflow ignores a point that it already has and can't delete a point, so uploading the same
points again is harmless. Every call may be interrupted anywhere and repeated.

    view.py     what MLflow shows of a sweep: a pure function of the plan and the store, with
                names.py, parameters.py, points.py, description.py, inputs.py and prepared_views.py
    cells.py    the means over seeds of a report, a run for each cell of its tables
    ledger.py   which stages are uploaded, and what `sync` needs without the sweep file,
                with kept_report.py
    uris.py     which URIs are allowed, and how to show one without its password
    database.py makes the tables of a SQLite database, and keeps a damaged one apart
    server.py   an MLflow server or database; experiment.py has an experiment and its runs
    settled.py  tells whether MLflow has all of a finished sweep, without asking it
    upload.py   sends what an experiment lacks of a sweep: its runs and its views, and with
                upload_report.py and upload_cells.py its report and its cells; upload_models.py
                and logged_models.py send the models of its trainings, which models.py describes
    tracker.py  does so for one sweep, or for all that a store has
    thread.py   does so every few seconds during a run, and waits no longer than patience.py says
    links.py    makes links to MLflow's pages, which ui.py serves
"""

from fope_lab.tracking.cells import CellRecord, Estimate
from fope_lab.tracking.errors import TrackingError
from fope_lab.tracking.links import run_link
from fope_lab.tracking.thread import TrackingThread, sync
from fope_lab.tracking.tracker import Tracker
from fope_lab.tracking.ui import serve
from fope_lab.tracking.uris import is_server

__all__ = [
    "CellRecord",
    "Estimate",
    "Tracker",
    "TrackingError",
    "TrackingThread",
    "is_server",
    "run_link",
    "serve",
    "sync",
]
