"""`fope-lab status`: show a sweep's progress."""

from __future__ import annotations

import argparse

from fope_lab.cli.console import make_console, print_notes
from fope_lab.cli.inputs import load_single_sweep
from fope_lab.cli.shared_options import add_file, add_store
from fope_lab.config.exit_codes import FAILED, OK

HELP = "show a sweep's progress"
ARGUMENTS = (add_file, add_store)


def run(options: argparse.Namespace) -> int:
    """Print the state of every stage, and each problem with its reason; returns the exit code."""
    from fope_lab.cli.render.status_table import states_table
    from fope_lab.orchestration.progress_view import observe_states, print_problems
    from fope_lab.store import Status, Store

    sweep = load_single_sweep(options.file, Store.open(options.store))
    store = Store.existing(options.store)
    states = observe_states(sweep.stages, store)
    console = make_console()
    console.print(states_table(sweep.stages, states, store))
    print_problems(sweep.stages, states, store, console)
    print_notes([sweep], store, console)
    failed = any(state.status is Status.FAILED for state in states.values())
    return FAILED if failed else OK
