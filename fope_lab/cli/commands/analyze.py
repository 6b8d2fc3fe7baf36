"""`fope-lab analyze`: run an analysis of a paper, on checkpoints or by itself."""

from __future__ import annotations

import argparse

from fope_lab.cli.adhoc_run import ADHOC_ARGUMENTS, run_adhoc_sweep
from fope_lab.cli.checkpoint_words import checkpoint_places
from fope_lab.cli.console import make_console
from fope_lab.cli.shared_options import CHECKPOINT, argument
from fope_lab.config.environment import FAILED, OK

HELP = "run an analysis from a paper: arrays and a figure"
ARGUMENTS = (
    argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="an analysis, or '{type: NAME, OPTION: VALUE}'; without it, all analyses are listed",
    ),
    argument("checkpoints", nargs="*", metavar="CHECKPOINT", help=CHECKPOINT),
    argument("--corpus", metavar="CORPUS", help="text that the analysis reads, as in a sweep file"),
    *ADHOC_ARGUMENTS,
)


def run(options: argparse.Namespace) -> int:
    """Run the analysis and print where its results are; returns the exit code."""
    from fope_lab.cli.render.analyses_table import print_analyses, print_figures
    from fope_lab.store import Store
    from fope_lab.sweep.adhoc import analysis_content

    console = make_console()
    if options.name is None:
        print_analyses(console)
        return OK
    checkpoints = checkpoint_places(options.checkpoints, options.store)
    content = analysis_content(options.name, checkpoints, options.corpus, options.gpus)
    sweep, failed_or_blocked = run_adhoc_sweep("analyze", content, options, console)
    print_figures(sweep.stages, Store.open(options.store), console)
    return FAILED if failed_or_blocked else OK
