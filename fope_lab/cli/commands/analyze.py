"""`fope-lab analyze`: run an analysis of a paper, on checkpoints or by itself."""

from __future__ import annotations

import argparse

from fope_lab.cli.adhoc_run import add_adhoc_arguments, run_adhoc_sweep
from fope_lab.cli.console import make_console
from fope_lab.cli.exit_codes import DONE, FAILED
from fope_lab.cli.shared_options import CHECKPOINT

HELP = "run an analysis from a paper: arrays and a figure"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command on its parser."""
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="an analysis, or '{type: NAME, OPTION: VALUE}'; without it, all analyses are listed",
    )
    parser.add_argument("checkpoints", nargs="*", metavar="CHECKPOINT", help=CHECKPOINT)
    parser.add_argument(
        "--corpus", metavar="CORPUS", help="text that the analysis reads, as in a sweep file"
    )
    add_adhoc_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Run the analysis and print where its results are; returns the exit code."""
    from fope_lab.cli.render.analyses_table import print_analyses, print_figures
    from fope_lab.store import Store
    from fope_lab.sweep.adhoc_stages import analysis_content

    console = make_console()
    if options.name is None:
        print_analyses(console)
        return DONE
    content = analysis_content(options.name, options.checkpoints, options.corpus, options.gpus)
    sweep, failures = run_adhoc_sweep("analyze", content, options, console)
    print_figures(sweep.stages, Store.open(options.store), console)
    return FAILED if failures else DONE
