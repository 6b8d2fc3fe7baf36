"""The command `fope-lab`: finds the command that is asked for, runs it, and prints its error.

Exit codes: 0 all done, 1 some stage failed, 2 wrong input, 130 interrupted.

A command is a module of `fope_lab.cli.commands` with `HELP`, `add_arguments(parser)` and
`run(options) -> int`. Only these modules see the parsed options; what they call takes values.
They import what they need inside `run`, so that `--help` imports nothing heavy.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Iterable, Sequence

from fope_lab.cli.exit_codes import DONE, INTERRUPTED, WRONG_INPUT
from fope_lab.config.errors import UserError

COMMANDS = (
    *("validate", "plan", "run", "evaluate", "analyze", "status", "report", "sync", "ui"),
    *("submit", "fetch", "schema", "export", "embeddings", "scales"),
)
"""The names of the commands and of their modules, in the order of `--help`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    first = words[0] if words else ""
    parser = _parser([first] if first in COMMANDS else COMMANDS)
    if first not in COMMANDS and not first.startswith("-") and words:
        from fope_lab.config.problems import did_you_mean, name_list

        near = did_you_mean(first, COMMANDS)
        parser.error(f"unknown command {first!r}{near} (allowed: {name_list(COMMANDS)})")
    options = parser.parse_args(words)
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output, such as `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return WRONG_INPUT


def _parser(commands: Iterable[str]) -> argparse.ArgumentParser:
    """The parser of some commands: importing only one of them saves time."""
    parser = argparse.ArgumentParser(
        prog="fope-lab",
        description="Experiment sweeps for position embeddings: "
        "from one YAML file to a compared result.",
    )
    parser.add_argument("-V", "--version", nargs=0, action=_Version, help="show the version")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in commands:
        command = importlib.import_module(f"fope_lab.cli.commands.{name}")
        subparser = subparsers.add_parser(
            name, help=command.HELP, description=f"{command.HELP[0].upper()}{command.HELP[1:]}."
        )
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    return parser


class _Version(argparse.Action):
    """Prints the version; reading it takes a third of the time of `--help`."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"fope-lab {version('fope-lab')}")
        parser.exit()
