"""What `evaluate` and `analyze` share: they run a sweep that their arguments describe."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fope_lab.cli.shared_options import (
    add_address,
    add_plugins,
    add_store,
    add_tracking_uri,
    argument,
)

if TYPE_CHECKING:
    from rich.console import Console

    from fope_lab.store import StageState
    from fope_lab.sweep import Sweep


ADHOC_ARGUMENTS = (
    add_store,
    add_tracking_uri,
    add_address,
    add_plugins,
    argument("--gpus", type=float, default=0, metavar="N", help="GPUs of each stage (default: 0)"),
    argument(
        "--name",
        dest="sweep_name",
        help="name of the sweep that the command makes, and of its MLflow experiment",
    ),
)
"""The arguments of an ad-hoc sweep: where it runs, on how many GPUs, and its name."""


def run_adhoc_sweep(
    command: str, content: Mapping[str, Any], options: argparse.Namespace, console: Console
) -> tuple[Sweep, Mapping[str, StageState]]:
    """Save and run the sweep with this content; returns it with the stages that failed or were
    blocked, by key.

    `options` holds those of ADHOC_ARGUMENTS. Raises SweepError for wrong content, and what
    run_sweeps raises.
    """
    from fope_lab.orchestration.run_sweeps import require_unblocked, run_sweeps
    from fope_lab.store import Store
    from fope_lab.sweep import plan
    from fope_lab.sweep.adhoc import adhoc_sweep, save_sweep
    from fope_lab.tracking import Tracker

    if options.plugins:
        named = [
            os.path.abspath(name) if os.path.exists(name) else name for name in options.plugins
        ]
        content = {"plugins": named, **content}
    store = Store.open(options.store)
    Tracker(store.root, options.tracking_uri)  # refuses a wrong URI before anything is saved
    sweep, text = adhoc_sweep(command, options.sweep_name, content, store)
    require_unblocked([plan(sweep, store)])
    path = save_sweep(sweep, text, Store.create(options.store).root)
    console.print(f"saved as a sweep: {path}", highlight=False, soft_wrap=True, markup=False)
    failed_or_blocked = run_sweeps(
        [sweep],
        store=options.store,
        tracking_uri=options.tracking_uri,
        address=options.address,
        console=console,
    )
    return sweep, failed_or_blocked
