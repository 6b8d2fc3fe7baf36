"""`fope-lab new`, `validate` and `plan`: write a sweep file, check it, and preview its run."""

from __future__ import annotations

import argparse
from collections.abc import Container, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fope_lab.cli import shared_options as shared
from fope_lab.cli.shared_options import argument, command, flag
from fope_lab.config.console import WHOLE_ROWS, make_console, print_json, say
from fope_lab.config.environment import OK, default_address
from fope_lab.config.problems import counted

if TYPE_CHECKING:
    from rich.console import Console

    from fope_lab.sweep import Sweep


@command(
    "new",
    "write a sweep file for your own text, ready to run",
    argument("file", "the file to write; it must not exist yet", "NAME.yaml"),
    shared.words(
        "--text",
        "text files or a quoted pattern, such as 'books/*.txt' (default: the documentation of"
        " Python)",
        "GLOB",
    ),
)
def new(options: argparse.Namespace) -> int:
    from fope_lab.sweep.adhoc import write_new_sweep

    path = Path(options.file)
    sweep = write_new_sweep(path, options.text)
    print(f"{path}: {sweep.name}, {counted(len(sweep.stages))}; run it with `fope-lab run {path}`")
    return OK


@command("validate", "check sweep files without starting anything", shared.add_files)
def validate(options: argparse.Namespace) -> int:
    from fope_lab.sweep.load import load_sweeps

    sweeps = load_sweeps(options.files)
    for sweep in sweeps:
        print(f"{sweep.path}: {sweep.name}, {counted(len(sweep.stages))}")
    _print_machine_notes(sweeps, make_console(stderr=True))
    return OK


def _print_machine_notes(
    sweeps: Sequence[Sweep], console: Console, done: Container[str] = ()
) -> None:
    """Print what stages that are not `done` need and this machine lacks, unless RAY_ADDRESS names a
    cluster."""
    from fope_lab.planning.memory_fit import ELSEWHERE, machine_note

    if default_address() != "local":
        return
    left = ([stage for stage in sweep.stages if stage.key not in done] for sweep in sweeps)
    notes = filter(None, map(machine_note, sweeps, left))
    if found := list(notes):
        say(console, *found, ELSEWHERE, style="yellow")


@command(
    "plan",
    "preview a run: stages, cost, memory and time",
    shared.add_files,
    shared.add_store,
    shared.add_json,
    argument(
        "--device",
        "estimate stages with GPUs for this device, and refuse those that do not fit"
        " it: a6000, h100, … or cpu; by default a note says what this machine can't hold",
        "NAME",
    ),
    argument(
        "--price",
        "price of one GPU for one hour",
        "DOLLARS",
        type=shared.number(0, noun="a number of dollars"),
    ),
    shared.count("--gpus", "GPUs in total (default: as many as a stage needs)"),
    shared.count(
        "--cpus",
        "CPU cores in total (default: this machine's; with a GPU as --device, as many as a stage"
        " needs)",
    ),
    flag("--all", "show every stage on its own line"),
    epilog=shared.TABLE_WIDTH,
)
def plan(options: argparse.Namespace) -> int:
    from fope_lab.planning.estimate import estimate_plans
    from fope_lab.planning.needed_stages import plan_sweeps
    from fope_lab.store.root import Store
    from fope_lab.sweep.load import load_sweeps, no_collections
    from fope_lab.sweep.nearest import with_nearest
    from fope_lab.sweep.plan import notes

    store = Store.open(options.store)
    with no_collections():
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
    say(console, *notes(sweeps, store), style="yellow")
    if options.device is None and options.gpus is None and options.cpus is None:
        done = {key for key, state in estimate.states.items() if state.is_done}
        _print_machine_notes(sweeps, console, done)
    estimate.require_fit()
    return OK


COMMANDS = (new, validate, plan)
