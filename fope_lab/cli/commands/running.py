"""`fope-lab run`, `stop` and `submit`: run sweeps here or on a cluster, and end their runs."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fope_lab.cli import shared_options as shared
from fope_lab.cli.shared_options import argument, command, flag
from fope_lab.config.console import make_console, say
from fope_lab.config.environment import FAILED, OK
from fope_lab.config.problems import Problem, SweepError

if TYPE_CHECKING:
    from fope_lab.store.state import StageState
    from fope_lab.tracking.uploads import Uploads


@command(
    "run",
    "run every stage that the store does not have yet",
    shared.add_files,
    shared.add_store,
    shared.add_tracking_uri,
    shared.add_address,
    argument(
        "--device",
        "start nothing if a stage does not fit this GPU of the cluster: a6000, h100, …",
        "NAME",
    ),
    shared.exclusive(
        argument(
            "--only",
            "run this stage and what it needs, and nothing else; it goes by its name in the sweep"
            " file, its label or its key; may be repeated",
            "STAGE",
            action="append",
            default=[],
        ),
        flag(
            "--retry-failed",
            "run only the stages whose last attempt failed, those that wait for them, and what all"
            " of these need",
        ),
    ),
    argument(
        "--redo",
        "re-run a stage and everything that depends on it, by its name in the sweep file, its"
        " label or its key; may be repeated; the old output is kept in the stage's folder",
        "STAGE",
        action="append",
        default=[],
    ),
    flag(
        "--redo-stale",
        "re-run every stage whose code has changed since it ran, and everything that depends on it",
    ),
)
def run(options: argparse.Namespace) -> int:
    from fope_lab.orchestration.ending import signals_interrupt

    with signals_interrupt():
        from fope_lab.tracking.uploads import Uploads

        with Uploads() as uploads:  # its process imports MLflow while the sweeps are read
            failed_or_blocked = _run(options, uploads)
    return FAILED if failed_or_blocked else OK


def _run(options: argparse.Namespace, uploads: Uploads) -> Mapping[str, StageState]:
    from fope_lab.orchestration.run_sweeps import run_sweeps
    from fope_lab.store.root import Store
    from fope_lab.sweep.load import load_sweeps
    from fope_lab.sweep.stage_filter import every_stage, failed, only

    if (options.only or options.retry_failed) and (options.redo or options.redo_stale):
        flag = "--only" if options.only else "--retry-failed"
        fault = "can't be used together with --redo, which re-runs all that depends on a stage"
        raise SweepError(Problem((flag,), fault))
    select = failed if options.retry_failed else every_stage
    # What has failed is in a store: one that is not there is a mistake in its path.
    find = Store.existing if options.retry_failed else Store.open
    return run_sweeps(
        load_sweeps(options.files, find(options.store)),
        uploads,
        store=options.store,
        tracking_uri=options.tracking_uri,
        address=options.address,
        console=make_console(),
        device=options.device,
        redo=options.redo,
        redo_stale=options.redo_stale,
        select=only(options.only) if options.only else select,
    )


@command(
    "stop",
    "end the runs of a sweep on this machine, as Ctrl-C would",
    shared.add_file,
    shared.add_store,
)
def stop(options: argparse.Namespace) -> int:
    from fope_lab.orchestration.drivers import stop
    from fope_lab.store.root import Store
    from fope_lab.sweep.load import name_of_sweep

    name, tell = name_of_sweep(options.file), functools.partial(say, make_console())
    return OK if stop(Store.existing(options.store), name, tell) else FAILED


@command(
    "submit",
    "run a sweep on a Ray cluster, as a Ray job",
    shared.add_file,
    argument(
        "--address",
        "address of the cluster's dashboard, such as http://HEAD:8265",
        "URL",
        required=True,
    ),
    argument("--store", "the store, by its path on the cluster", "DIR"),
    argument("--tracking-uri", "MLflow, as the cluster reaches it", "URI"),
    flag("--no-wait", "return at once instead of following the log"),
)
def submit(options: argparse.Namespace) -> int:
    from fope_lab.orchestration.submit import submit
    from fope_lab.sweep.load import load_single_sweep

    return submit(
        load_single_sweep(options.file),
        options.address,
        store=options.store,
        tracking_uri=options.tracking_uri,
        wait=not options.no_wait,
    )


COMMANDS = (run, stop, submit)
