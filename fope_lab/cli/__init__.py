"""The command line: `fope-lab`, a module for each command."""

from fope_lab.cli.app import main

__all__ = ["main"]
