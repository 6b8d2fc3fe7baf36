"""`fope-lab stop`: end the runs of a sweep from another terminal."""

from __future__ import annotations

import argparse

from fope_lab.cli.console import make_console
from fope_lab.cli.inputs import name_of_sweep
from fope_lab.cli.shared_options import add_file, add_store
from fope_lab.config.environment import FAILED, OK

HELP = "end the runs of a sweep on this machine, as Ctrl-C would"
ARGUMENTS = (add_file, add_store)


def run(options: argparse.Namespace) -> int:
    """Print what happens; the exit code is 0 if nothing runs the sweep any more."""
    from fope_lab.orchestration.stop import stop
    from fope_lab.store import Store

    console = make_console()

    def say(line: str) -> None:
        console.print(line, soft_wrap=True, highlight=False, markup=False)

    name = name_of_sweep(options.file)
    return OK if stop(Store.existing(options.store), name, say) else FAILED
