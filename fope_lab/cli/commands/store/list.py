"""`fope-lab store list`: list the stages of a store by size."""

from __future__ import annotations

import argparse

from fope_lab.cli.console import WHOLE_ROWS, make_console, print_json
from fope_lab.cli.shared_options import TABLE_WIDTH, add_json, add_store
from fope_lab.config.environment import OK

HELP = "list the stages of a store with their states, sizes and ages, largest first"
ARGUMENTS = (add_store, add_json)
EPILOG = TABLE_WIDTH


def run(options: argparse.Namespace) -> int:
    """Print a line for each stage, and the totals; returns the exit code."""
    from fope_lab.cli.render.store_table import contents_json, print_contents
    from fope_lab.housekeeping.contents import contents
    from fope_lab.store import Store

    found = contents(Store.existing(options.store))
    if options.json:
        print_json(contents_json(found))
    else:
        print_contents(found, make_console(elsewhere=WHOLE_ROWS))
    return OK
