"""`fope-lab status`: show the progress of sweeps."""

from __future__ import annotations

import argparse

from fope_lab.cli.console import WHOLE_ROWS, make_console, print_json, print_notes
from fope_lab.cli.inputs import load_sweeps
from fope_lab.cli.shared_options import TABLE_WIDTH, add_files, add_json, add_store, argument
from fope_lab.config.environment import FAILED, OK

HELP = "show the progress of sweeps, and whether something is running them"
ARGUMENTS = (
    add_files,
    add_store,
    add_json,
    argument(
        "--watch",
        action="store_true",
        help="keep showing the progress until nothing runs the sweeps",
    ),
)
EPILOG = TABLE_WIDTH


def run(options: argparse.Namespace) -> int:
    """Print the state of every stage, and each cause of a failure once; returns the exit code."""
    from fope_lab.cli.render.status_json import status_json
    from fope_lab.cli.render.status_table import states_table
    from fope_lab.config.problems import Problem, SweepError
    from fope_lab.orchestration.progress_view import observe_states, print_line, print_problems
    from fope_lab.orchestration.stop import drivers_of_recorded
    from fope_lab.orchestration.watching import watch
    from fope_lab.store import Status, Store
    from fope_lab.store.snapshot import StoreSnapshot

    if options.json and options.watch:
        raise SweepError(Problem(("--json",), "can't be used together with --watch"))
    sweeps = load_sweeps(options.files, Store.open(options.store))
    store = Store.existing(options.store)
    console = make_console(stderr=options.json, elsewhere=WHOLE_ROWS)
    if options.watch:
        watch(sweeps, store, console)
    stages = list({stage.key: stage for sweep in sweeps for stage in sweep.stages}.values())
    store = StoreSnapshot.of(store)
    states = observe_states(sweeps, store)
    contents = []
    for sweep in sweeps:
        drivers = drivers_of_recorded(store, sweep.name)
        own = {stage.key: states[stage.key] for stage in sweep.stages}
        if options.json:
            contents.append(status_json(sweep, own, store, drivers))
            continue
        runs = ", ".join(str(driver) for driver in drivers)
        line = f"{sweep.name}: {f'run by {runs}' if runs else 'nothing is running it'}"
        print_line(console, f"{line}; store {store.root}", style="bold")
        console.print(states_table(sweep.stages, own, store))
    if options.json:
        print_json({"sweeps": contents})
    else:
        print_problems(stages, states, store, console)
    print_notes(sweeps, store, console)
    failed = any(state.status is Status.FAILED for state in states.values())
    return FAILED if failed else OK
