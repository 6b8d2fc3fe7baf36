"""`fope-lab plan`: preview a run."""

from __future__ import annotations

import argparse

from fope_lab.cli.console import (
    WHOLE_ROWS,
    make_console,
    print_json,
    print_machine_notes,
    print_notes,
)
from fope_lab.cli.inputs import load_sweeps
from fope_lab.cli.shared_options import (
    TABLE_WIDTH,
    add_files,
    add_json,
    add_store,
    argument,
    number,
    whole_number,
)
from fope_lab.config.environment import OK
from fope_lab.no_collections import no_collections

HELP = "preview a run: stages, cost, memory and time"
ARGUMENTS = (
    add_files,
    add_store,
    add_json,
    argument(
        "--device",
        metavar="NAME",
        help="estimate stages with GPUs for this device, and refuse those that do not fit it:"
        " a6000, h100, … or cpu; by default a note says what this machine can't hold",
    ),
    argument(
        "--price",
        type=number(0, noun="a number of dollars"),
        metavar="DOLLARS",
        help="price of one GPU for one hour",
    ),
    argument(
        "--gpus",
        type=whole_number(1),
        metavar="N",
        help="GPUs in total (default: as many as a stage needs)",
    ),
    argument(
        "--cpus",
        type=whole_number(1),
        metavar="N",
        help="CPU cores in total "
        "(default: this machine's; with a GPU as --device, as many as a stage needs)",
    ),
    argument("--all", action="store_true", help="show every stage on its own line"),
)
EPILOG = TABLE_WIDTH


@no_collections()
def run(options: argparse.Namespace) -> int:
    """Print the plan; returns the exit code. Raises SweepError for stages that fit no device."""
    from fope_lab.planning.estimate import estimate_plans
    from fope_lab.planning.needed_stages import plan_sweeps
    from fope_lab.store import Store
    from fope_lab.sweep.nearest import with_nearest

    store = Store.open(options.store)
    sweeps = load_sweeps(options.files, store)
    estimate = estimate_plans(
        with_nearest(plan_sweeps(sweeps, store), store),
        store,
        device=options.device,
        price=options.price,
        gpus=options.gpus,
        cpus=options.cpus,
    )
    if options.json:
        print_json(estimate.as_json())
    else:
        from fope_lab.planning.plan_table import print_plan

        print_plan(estimate, make_console(elsewhere=WHOLE_ROWS), every=options.all)
    console = make_console(stderr=options.json)
    print_notes(sweeps, store, console)
    if options.device is None and options.gpus is None and options.cpus is None:
        done = {key for key, state in estimate.states.items() if state.is_done}
        print_machine_notes(sweeps, console, done)
    estimate.require_fit()
    return OK
