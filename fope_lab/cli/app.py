"""The command `fope-lab`: finds the command that is asked for, runs it, and prints its error.

Exit codes: 0 all done, 1 some stage failed, 2 wrong input, 130 interrupted.

A command is a module of `fope_lab.cli.commands` with `HELP`, `add_arguments(parser)` and
`run(options) -> int`. Only these modules see the parsed options; what they call takes values.
They import what they need inside `run`, so that `--help` imports nothing heavy.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from typing import Protocol

from fope_lab.cli.commands import (
    analyze,
    embeddings,
    evaluate,
    export,
    fetch,
    plan,
    report,
    run,
    scales,
    schema,
    status,
    submit,
    sync,
    ui,
    validate,
)
from fope_lab.cli.exit_codes import DONE, INTERRUPTED, WRONG_INPUT
from fope_lab.config.errors import UserError


class Command(Protocol):
    """What a module of `fope_lab.cli.commands` has."""

    __name__: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser, /) -> None:
        """Declare the command's arguments."""

    def run(self, options: argparse.Namespace, /) -> int:
        """Run the command; returns the exit code."""


MODULES: tuple[Command, ...] = (
    *(validate, plan, run, evaluate, analyze, status, report, sync, ui, submit, fetch, schema),
    *(export, embeddings, scales),
)
COMMANDS = {module.__name__.rpartition(".")[2]: module for module in MODULES}
"""The commands by name, in the order of `--help`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser = _parser()
    _require_known_command(words, parser)
    options = parser.parse_args(words)
    try:
        return COMMANDS[options.command].run(options)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output, such as `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return WRONG_INPUT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fope-lab",
        description="Experiment sweeps for position embeddings: "
        "from one YAML file to a compared result.",
    )
    version = importlib.metadata.version("fope-lab")
    parser.add_argument("-V", "--version", action="version", version=f"fope-lab {version}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module in COMMANDS.items():
        module.add_arguments(
            subparsers.add_parser(name, help=module.HELP, description=f"{module.HELP}.")
        )
    return parser


def _require_known_command(words: Sequence[str], parser: argparse.ArgumentParser) -> None:
    """Exit with code 2 and the nearest name if the first word is not a command."""
    word = next((word for word in words if not word.startswith("-")), None)
    if word is not None and word not in COMMANDS:
        from fope_lab.config.problems import did_you_mean, name_list

        names = list(COMMANDS)
        near = did_you_mean(word, names)
        parser.error(f"unknown command {word!r}{near} (allowed: {name_list(names)})")
