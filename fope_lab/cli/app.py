"""The command `fope-lab`: finds the command that is asked for, runs it, and prints its error.

Exit codes: 0 nothing failed, 1 some stage failed or was blocked, 2 wrong input (or a store, server
or cluster that can't be used), 130 interrupted.

A command is a module of `fope_lab.cli.commands` with `HELP`, `ARGUMENTS` and `run(options) -> int`.
Each of ARGUMENTS adds one argument, or a group of them, to a parser; EPILOG, if a command has one,
is what its help says below them. Only these modules see the parsed options; what they call takes
values. They import what they need inside `run`, so that `--help` imports nothing heavy. A command
with actions, such as `fope-lab store`, is a package with `HELP` and `ACTIONS`, the names of its
modules, which are as those of commands.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fope_lab.atomic_files import MAKE_ROOM, is_full_disk
from fope_lab.cli.console import mute_stdout
from fope_lab.config.environment import INTERRUPTED, OK, WRONG_INPUT
from fope_lab.config.problems import UserError

COMMANDS = (
    *("new", "validate", "plan", "run", "stop", "evaluate", "analyze", "status", "logs"),
    *(
        "report",
        "sync",
        "ui",
        "submit",
        "fetch",
        "schema",
        "export",
        "embeddings",
        "scales",
        "store",
        "completion",
    ),
)
"""The names of the commands and of their modules, in the order of `--help`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    _open_closed_outputs()
    words = sys.argv[1:] if arguments is None else list(arguments)
    return _dispatch(COMMAND_GROUP, words)


@dataclass(frozen=True)
class Group:
    """Commands of which the next word names one; `package` has a module for each of `names`."""

    prog: str
    description: str
    noun: str
    package: str
    names: Sequence[str]

    def module(self, name: str) -> Any:
        """The module or package of a command."""
        return importlib.import_module(f"{self.package}.{name}")

    def inner(self, name: str) -> Group | None:
        """The actions of a command that has any."""
        command = self.module(name)
        actions = getattr(command, "ACTIONS", None)
        if actions is None:
            return None
        prog = f"{self.prog} {name}"
        return Group(prog, _sentence(command.HELP), "action", command.__name__, actions)

    def overview(self) -> _Parser:
        """The parser that lists all commands and runs none."""
        parser = _Parser(prog=self.prog, description=self.description)
        if self.names is COMMANDS:
            parser.add_argument("-V", "--version", nargs=0, action=_Version, help=_Version.HELP)
        subparsers = parser.add_subparsers(metavar=self.noun.upper(), required=True)
        for name in self.names:
            subparsers.add_parser(name, help=self.module(name).HELP)
        return parser


COMMAND_GROUP = Group(
    prog="fope-lab",
    description="Experiment sweeps for position embeddings: "
    "from one YAML file to a compared result.",
    noun="command",
    package="fope_lab.cli.commands",
    names=COMMANDS,
)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _dispatch(group: Group, words: Sequence[str]) -> int:
    if words and words[0] in group.names:
        command, prog = group.module(words[0]), f"{group.prog} {words[0]}"
        if inner := group.inner(words[0]):
            return _dispatch(inner, words[1:])
        epilog = getattr(command, "EPILOG", None)
        parser = _Parser(prog=prog, description=_sentence(command.HELP), epilog=epilog)
        for add in command.ARGUMENTS:
            add(parser)
        return _run(prog, command.run, parser.parse_args(words[1:]))
    overview = group.overview()
    if words and not words[0].startswith("-"):
        from fope_lab.config.problems import did_you_mean, name_list

        near = did_you_mean(words[0], group.names)
        allowed = name_list(group.names)
        overview.error(f"unknown {group.noun} {words[0]!r}{near} (allowed: {allowed})")
    overview.parse_args(words)  # without a command, this prints help or an error, and exits
    return WRONG_INPUT


def _run(
    prog: str, command: Callable[[argparse.Namespace], int], options: argparse.Namespace
) -> int:
    code = OK
    try:
        code = command(options)
        sys.stdout.flush()  # here, where an error is caught, and not when Python ends
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        mute_stdout()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return WRONG_INPUT
    except ModuleNotFoundError as error:
        from fope_lab.config.environment import EXTRA_OF, missing_packages

        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF:
            raise
        print(f"error: {missing_packages(f'`{prog}`', [package])}", file=sys.stderr)
        return WRONG_INPUT
    except OSError as error:
        if not is_full_disk(error):
            raise
        where = f" for {error.filename}" if error.filename else ""
        print(f"error: no space left on the disk{where}; {MAKE_ROOM}", file=sys.stderr)
        mute_stdout()  # it may be what is full
        return WRONG_INPUT
    return code


def _open_closed_outputs() -> None:
    """Reopen closed outputs, as after `>&-`, on /dev/null: else the next file that is opened would
    get what is printed."""
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, descriptor)
            setattr(sys, name, open(descriptor, "w", encoding="utf-8"))  # noqa: SIM115


class _Parser(argparse.ArgumentParser):
    """Takes options by their whole names, and suggests the nearest right word for a wrong one."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse the words, all of which must be known up to the first `--`."""
        words = list(args or ())
        names = list(self._option_string_actions)
        for word in itertools.takewhile(lambda word: word != "--", words):
            name = word.partition("=")[0]
            if name.startswith("--") and " " not in word and name not in names:
                from fope_lab.config.problems import did_you_mean, name_list

                allowed = name_list(name for name in names if name.startswith("--"))
                near = did_you_mean(name, names)
                self.error(f"unknown option {name!r}{near} (allowed: {allowed})")
        return super().parse_known_args(words, namespace)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a word that is none of the argument's choices. argparse calls this."""
        if action.choices is not None and value not in action.choices:
            from fope_lab.config.problems import did_you_mean, name_list

            near = did_you_mean(value, action.choices)
            message = f"found {value!r}{near} (allowed: {name_list(action.choices)})"
            raise argparse.ArgumentError(action, message)


class _Version(argparse.Action):
    """Prints the version; reading it takes a third of the time of `--help`."""

    HELP = "show the version"

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"fope-lab {version('fope-lab')}")
        parser.exit()
