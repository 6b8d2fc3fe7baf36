"""`fope-lab validate`: check sweep files."""

from __future__ import annotations

import argparse

from fope_lab.cli.inputs import load_sweeps
from fope_lab.cli.shared_options import add_files
from fope_lab.config.exit_codes import OK

HELP = "check sweep files without starting anything"
ARGUMENTS = (add_files,)


def run(options: argparse.Namespace) -> int:
    """Print the number of stages of each sweep; returns the exit code."""
    for sweep in load_sweeps(options.files):
        print(f"{sweep.path}: {sweep.name}, {len(sweep.stages)} stages")
    return OK
