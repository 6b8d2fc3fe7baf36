"""The command `fope-lab`: one parser of all commands, and what becomes of their errors.

Exit codes: 0 nothing failed, 1 some stage failed or was blocked, 2 wrong input (or a store, server
or cluster that can't be used), 130 interrupted.

Each module of `fope_lab.cli.commands` declares its COMMANDS. Only these modules see the parsed
options; what they call takes values. They import what they need inside functions, so that `--help`
imports nothing heavy.
"""

from __future__ import annotations

import argparse
import gc
import io
import itertools
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from fope_lab.cli import completion
from fope_lab.cli.commands import catalogue, check, models, running, store, sweeps, watching
from fope_lab.cli.shared_options import Command
from fope_lab.config.atomic_files import MAKE_ROOM, is_full_disk
from fope_lab.config.console import mute_stdout, plain
from fope_lab.config.environment import INTERRUPTED, OK, WRONG_INPUT
from fope_lab.config.problems import UserError, did_you_mean, name_list

MODULES = (sweeps, running, watching, models, check, store, catalogue, completion)
COMMANDS: Mapping[str, Command] = {
    command.name: command for module in MODULES for command in module.COMMANDS
}
"""Every command by name, in the order of `--help`."""
NO_COMMAND = "the following arguments are required"
"""How argparse's error begins where a command is missing."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    _open_closed_outputs()
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):  # rather than an error where † can't be encoded
            output.reconfigure(errors="backslashreplace")
    parser = whole_parser()
    completion.answer_shell(parser)  # ends the process if a shell asks what can come next
    options = parser.parse_args(sys.argv[1:] if arguments is None else list(arguments))
    return _run(options)


def whole_parser() -> argparse.ArgumentParser:
    """The parser of all commands and their actions."""
    parser = _Parser(
        prog="fope-lab",
        description="Experiment sweeps for position embeddings: from one YAML file to a compared"
        " result.",
    )
    parser.add_argument("-V", "--version", nargs=0, action=_Version, help="show the version")
    _add_commands(parser, COMMANDS.values(), "COMMAND")
    return parser


def _add_commands(parser: _Parser, commands: Iterable[Command], noun: str) -> None:
    group = parser.add_subparsers(metavar=noun, required=True, parser_class=_Parser)
    for command in commands:
        text = f"{command.help[0].upper()}{command.help[1:]}."
        own = group.add_parser(
            command.name, help=command.help, description=text, epilog=command.epilog
        )
        for add in command.arguments:
            add(own)
        if command.actions:
            _add_commands(own, command.actions, "ACTION")
        else:
            own.set_defaults(_command=command, _prog=own.prog)


def _run(options: argparse.Namespace) -> int:
    code = OK
    gc.set_threshold(100_000, 20, 100)  # a command that reads thousands of stages keeps them all
    try:
        if names := getattr(options, "plugins", None):
            from fope_lab.config.plugins import load_plugins

            load_plugins(names, at=("--plugins",))
        code = options._command.run(options)  # the function in commands/, such as running.run
        sys.stdout.flush()  # here, where an error is caught, and not when Python ends
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        mute_stdout()
    except UserError as error:
        print(f"error: {plain(str(error))}", file=sys.stderr)
        return WRONG_INPUT
    except ModuleNotFoundError as error:
        from fope_lab.config.environment import EXTRA_OF, missing_packages

        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF:
            raise
        print(f"error: {missing_packages(f'`{options._prog}`', [package])}", file=sys.stderr)
        return WRONG_INPUT
    except OSError as error:
        if not is_full_disk(error):
            raise
        where = f" for {error.filename}" if error.filename else ""
        print(f"error: no space left on the disk{where}; {MAKE_ROOM}", file=sys.stderr)
        mute_stdout()  # stdout's disk may be the full one
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
        """Parse the words; options up to the command, or up to the first `--`, must be known."""
        words = list(args or ())
        names = list(self._option_string_actions)
        own = itertools.takewhile(
            lambda word: word != "--" and (self._subparsers is None or word.startswith("-")), words
        )
        for word in own:
            name = word.partition("=")[0]
            if name.startswith("--") and " " not in word and name not in names:
                allowed = name_list(name for name in names if name.startswith("--"))
                near = did_you_mean(name, names)
                self.error(f"unknown option {name!r}{near} (allowed: {allowed})")
        found, left = super().parse_known_args(words, namespace)
        if left and self._subparsers is None:  # here, where the usage is the command's own
            self.error(f"unrecognized arguments: {' '.join(left)}")
        return found, left

    def error(self, message: str) -> NoReturn:
        """End with what is wrong; where no command is named, with all that there are."""
        if self._subparsers is not None and message.startswith(NO_COMMAND):
            self.print_help(sys.stderr)
            self.exit(WRONG_INPUT)
        super().error(message)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a word that is none of the argument's choices. argparse calls this."""
        if action.choices is not None and value not in action.choices:
            near = did_you_mean(value, action.choices)
            fault = f"{value!r}{near} (allowed: {name_list(action.choices)})"
            if isinstance(action, argparse._SubParsersAction):
                self.error(f"unknown {str(action.metavar).lower()} {fault}")
            raise argparse.ArgumentError(action, f"found {fault}")


class _Version(argparse.Action):
    """Prints the version, which takes a third of the time of `--help` to read."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"fope-lab {version('fope-lab')}")
        parser.exit()
