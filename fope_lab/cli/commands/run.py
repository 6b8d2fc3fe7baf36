"""`fope-lab run`: run the stages of sweeps that the store lacks."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fope_lab.cli.console import make_console
from fope_lab.cli.inputs import load_sweeps
from fope_lab.cli.shared_options import (
    add_address,
    add_files,
    add_store,
    add_tracking_uri,
    argument,
)
from fope_lab.config.environment import FAILED, OK

if TYPE_CHECKING:
    from fope_lab.sweep.stage_filter import StageFilter

ONLY = "--only"


def _add_selection(parser: argparse.ArgumentParser) -> None:
    selection = parser.add_mutually_exclusive_group()
    selection.add_argument(
        ONLY,
        action="append",
        default=[],
        metavar="STAGE",
        help="run this stage and what it needs, and nothing else; it goes by its name in the sweep"
        " file, its label or its key; may be repeated",
    )
    selection.add_argument(
        "--retry-failed",
        action="store_true",
        help="run only the stages whose last attempt failed, those that wait for them, and what"
        " all of these need",
    )


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
    _add_selection,
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

        select = _selection(options)
        # What has failed is in a store: one that is not there is a mistake in its path.
        find = Store.existing if options.retry_failed else Store.open
        sweeps = load_sweeps(options.files, find(options.store))
        failed_or_blocked = run_sweeps(
            sweeps,
            store=options.store,
            tracking_uri=options.tracking_uri,
            address=options.address,
            console=make_console(),
            device=options.device,
            redo=options.redo,
            redo_stale=options.redo_stale,
            select=select,
        )
    return FAILED if failed_or_blocked else OK


def _selection(options: argparse.Namespace) -> StageFilter:
    """Which stages the options select. Raises SweepError for options that contradict each other."""
    from fope_lab.config.problems import Problem, SweepError
    from fope_lab.sweep.stage_filter import every_stage, failed, only

    if (options.only or options.retry_failed) and (options.redo or options.redo_stale):
        flag = ONLY if options.only else "--retry-failed"
        message = "can't be used together with --redo, which re-runs all that depends on a stage"
        raise SweepError(Problem((flag,), message))
    if options.retry_failed:
        return failed
    return only(options.only) if options.only else every_stage
