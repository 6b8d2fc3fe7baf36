"""`fope-lab new`: write a sweep file to begin with."""

from __future__ import annotations

import argparse
from pathlib import Path

from fope_lab.cli.shared_options import argument
from fope_lab.config.environment import OK

HELP = "write a sweep file for your own text, ready to run"
ARGUMENTS = (
    argument("file", metavar="NAME.yaml", help="the file to write; it must not exist yet"),
    argument(
        "--text",
        nargs="+",
        default=[],
        metavar="GLOB",
        help="text files or a quoted pattern, such as 'books/*.txt' (default: the documentation of"
        " Python)",
    ),
)


def run(options: argparse.Namespace) -> int:
    """Write the file and print what to do with it; returns the exit code."""
    from fope_lab.config.problems import counted
    from fope_lab.sweep.new_sweep import write_new_sweep

    path = Path(options.file)
    sweep = write_new_sweep(path, options.text)
    number = counted(len(sweep.stages))
    print(f"{path}: {sweep.name}, {number}; run it with `fope-lab run {path}`")
    return OK
