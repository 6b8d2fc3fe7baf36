"""`fope-lab evaluate`: evaluate checkpoints without a sweep file."""

from __future__ import annotations

import argparse

from fope_lab.cli.adhoc_run import ADHOC_ARGUMENTS, run_adhoc_sweep
from fope_lab.cli.checkpoint_words import checkpoint_places
from fope_lab.cli.console import make_console
from fope_lab.cli.shared_options import CHECKPOINT, add_json, argument
from fope_lab.config.environment import FAILED, OK

HELP = "evaluate checkpoints without a sweep file"
ARGUMENTS = (
    argument("checkpoints", nargs="+", metavar="CHECKPOINT", help=CHECKPOINT),
    argument(
        "--tasks",
        nargs="+",
        required=True,
        metavar="TASK",
        help="a kind of evaluation, such as passkey, the name of a task, such as hellaswag, or"
        " 'KIND: {FIELD: VALUE}' as in a sweep; a wrong name lists all",
    ),
    argument(
        "--lengths",
        nargs="+",
        type=int,
        metavar="N",
        help="context lengths of the evaluations that have lengths",
    ),
    argument(
        "--embedding",
        nargs="+",
        default=[],
        metavar="EMBEDDING",
        help="evaluate with this embedding in place of the checkpoint's own, without training; it"
        " is written as in a sweep, such as '{type: yarn, factor: 4}'; several are compared, and"
        " null is the checkpoint's own",
    ),
    add_json,
    *ADHOC_ARGUMENTS,
)


def run(options: argparse.Namespace) -> int:
    """Run the evaluations and print their results; returns the exit code."""
    from fope_lab.orchestration.sweep_report import report_of_sweep
    from fope_lab.report.render.json import render_json
    from fope_lab.store import Store
    from fope_lab.sweep.adhoc import evaluation_content

    checkpoints = checkpoint_places(options.checkpoints, options.store)
    content = evaluation_content(
        checkpoints, options.tasks, options.lengths, options.gpus, options.embedding
    )
    console = make_console(stderr=options.json)
    sweep, failed_or_blocked = run_adhoc_sweep("evaluate", content, options, console)
    if options.json:
        store = Store.open(options.store)
        print(render_json(report_of_sweep(sweep, store, options.tracking_uri)))
    return FAILED if failed_or_blocked else OK
