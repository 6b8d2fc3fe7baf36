"""`fope-lab validate`: check sweep files."""

from __future__ import annotations

import argparse

from fope_lab.cli.console import make_console, print_machine_notes
from fope_lab.cli.inputs import load_sweeps
from fope_lab.cli.shared_options import add_files
from fope_lab.config.environment import OK

HELP = "check sweep files without starting anything"
ARGUMENTS = (add_files,)


def run(options: argparse.Namespace) -> int:
    """Print the number of stages of each sweep; returns the exit code.

    What this machine can't hold is a note on standard error: the sweep may be meant for a cluster.
    """
    from fope_lab.config.problems import counted

    sweeps = load_sweeps(options.files)
    for sweep in sweeps:
        print(f"{sweep.path}: {sweep.name}, {counted(len(sweep.stages))}")
    print_machine_notes(sweeps, make_console(stderr=True))
    return OK
