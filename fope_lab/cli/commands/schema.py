"""`fope-lab schema`: print the JSON Schema of sweep files."""

from __future__ import annotations

import argparse

from fope_lab.cli.console import print_json
from fope_lab.cli.shared_options import AddArgument
from fope_lab.config.environment import OK

HELP = "print the JSON Schema of sweep files, for editors"
ARGUMENTS: tuple[AddArgument, ...] = ()


def run(options: argparse.Namespace) -> int:
    """Print the schema; returns the exit code."""
    from fope_lab.sweep.schema import sweep_json_schema

    print_json(sweep_json_schema())
    return OK
