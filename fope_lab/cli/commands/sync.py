"""`fope-lab sync`: bring MLflow up to date with the store."""

from __future__ import annotations

import argparse

from fope_lab.cli.shared_options import add_store, add_tracking_uri
from fope_lab.config.exit_codes import OK

HELP = "bring MLflow up to date with the store"
ARGUMENTS = (add_store, add_tracking_uri)


def run(options: argparse.Namespace) -> int:
    """Upload what MLflow lacks and print the sweeps; returns the exit code."""
    from fope_lab.tracking import Tracker

    names = Tracker(options.store, options.tracking_uri).sync()
    print(f"up to date: {', '.join(names) or 'nothing has run yet'}")
    return OK
