"""`fope-lab harness`: print the folder of fope-lab's tasks for lm-evaluation-harness."""

from __future__ import annotations

import argparse

from fope_lab.cli.shared_options import AddArgument
from fope_lab.config.environment import OK

HELP = "print the folder of our tasks for lm-evaluation-harness (lm_eval --include_path)"
ARGUMENTS: tuple[AddArgument, ...] = ()


def run(options: argparse.Namespace) -> int:
    """Print the folder and nothing else, so that a shell can insert it; returns the exit code."""
    from fope_lab.harness import TASKS

    print(TASKS)
    return OK
