"""`fope-lab run`: run the stages of sweeps that the store lacks."""

from __future__ import annotations

import argparse

from fope_lab.cli.console import make_console
from fope_lab.cli.inputs import load_sweeps
from fope_lab.cli.shared_options import (
    add_address,
    add_files,
    add_store,
    add_tracking_uri,
    argument,
)
from fope_lab.config.exit_codes import FAILED, OK

HELP = "run every stage that the store does not have yet"
ARGUMENTS = (
    add_files,
    add_store,
    add_tracking_uri,
    add_address,
    argument(
        "--device",
        metavar="NAME",
        help="start nothing if a stage does not fit this GPU of the cluster: a6000, h100, …",
    ),
    argument(
        "--redo",
        action="append",
        default=[],
        metavar="STAGE",
        help="re-run a stage and everything that depends on it, by its name in the sweep file, its"
        " label or its key; may be repeated; the old output is kept in the stage's folder",
    ),
    argument(
        "--redo-stale",
        action="store_true",
        help="re-run every stage whose code has changed since it ran, and everything that depends"
        " on it",
    ),
)


def run(options: argparse.Namespace) -> int:
    """Run the sweeps; returns the exit code."""
    from fope_lab.orchestration.signals import signals_interrupt

    with signals_interrupt():
        from fope_lab.orchestration.run_sweeps import run_sweeps
        from fope_lab.store import Store

        sweeps = load_sweeps(options.files, Store.open(options.store))
        failed_or_blocked = run_sweeps(
            sweeps,
            store=options.store,
            tracking_uri=options.tracking_uri,
            address=options.address,
            console=make_console(),
            device=options.device,
            redo=options.redo,
            redo_stale=options.redo_stale,
        )
    return FAILED if failed_or_blocked else OK
