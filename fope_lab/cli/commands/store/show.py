"""`fope-lab store show`: show all that a store knows of a stage."""

from __future__ import annotations

import argparse

from fope_lab.cli.console import make_console
from fope_lab.cli.shared_options import add_stage, add_store
from fope_lab.config.environment import OK

HELP = "show a stage: its configuration, attempts, parents, children and files"
ARGUMENTS = (add_stage, add_store)


def run(options: argparse.Namespace) -> int:
    """Print what is known of the stage; returns the exit code."""
    from fope_lab.cli.render.stage_page import print_details
    from fope_lab.housekeeping.known_stages import find_known_stage
    from fope_lab.housekeeping.stage_details import stage_details
    from fope_lab.store import Store

    store = Store.existing(options.store)
    print_details(stage_details(store, find_known_stage(store, options.stage)), make_console())
    return OK
