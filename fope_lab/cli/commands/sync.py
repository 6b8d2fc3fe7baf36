"""`fope-lab sync`: bring MLflow up to date with the store."""

from __future__ import annotations

import argparse

from fope_lab.cli.shared_options import add_store, add_tracking_uri
from fope_lab.config.environment import OK

HELP = "bring MLflow up to date with the store"
ARGUMENTS = (add_store, add_tracking_uri)


def run(options: argparse.Namespace) -> int:
    """Upload what MLflow lacks and print the sweeps; returns the exit code."""
    from fope_lab.store import Store
    from fope_lab.tracking import Tracker, sync

    tracker = Tracker(Store.existing(options.store).root, options.tracking_uri)
    try:
        names = sync(tracker)
    finally:
        if tracker.replaced:
            print(tracker.replaced)
    print(f"up to date: {', '.join(names) or 'nothing has run yet'}")
    if missing := tracker.without_report():
        print(f"without a report, which `fope-lab run` makes at its end: {', '.join(missing)}")
    return OK
