"""The reference of commands, from their own parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from docs.generate.markdown import anchor, block, plain, table
from fope_lab.cli import COMMANDS
from fope_lab.cli.shared_options import Command


def commands() -> Iterator[tuple[str, Command]]:
    """Every command and action, as the words that are typed."""
    for name, command in COMMANDS.items():
        yield name, command
        yield from ((f"{name} {action.name}", action) for action in command.actions)


def overview(_: str) -> str:
    """A table of all commands, each linked to its section."""
    rows = [
        (f"[`fope-lab {name}`](#{anchor(f'fope-lab {name}')})", plain(command.help))
        for name, command in commands()
    ]
    return table(("command", "what it does"), rows)


def reference(_: str) -> str:
    """A section for each command: its summary, its usage and its arguments."""
    return "\n\n".join(_section(name, command) for name, command in commands())


def parser_of(name: str, command: Command) -> argparse.ArgumentParser:
    """The parser of a command, as `fope-lab NAME --help` has it."""
    parser = argparse.ArgumentParser(
        prog=f"fope-lab {name}", formatter_class=lambda prog: argparse.HelpFormatter(prog, width=96)
    )
    for add in command.arguments:
        add(parser)
    return parser


def _section(name: str, command: Command) -> str:
    heading = f"## fope-lab {name}\n\n{plain(command.help[0].upper() + command.help[1:])}."
    if command.actions:
        return heading
    parser = parser_of(name, command)
    rows = [
        (_spelling(action), plain(action.help or ""))
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction)
    ]
    usage = block(parser.format_usage().removeprefix("usage: "), "sh")
    arguments = [table(("argument", "meaning"), rows)] if rows else []
    epilog = [plain(command.epilog)] if command.epilog else []
    return "\n\n".join([heading, usage, *arguments, *epilog])


def _spelling(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    if action.nargs == 0:
        return ", ".join(f"`{option}`" for option in action.option_strings)
    value = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    )
    more = " …" if action.nargs in ("+", "*") else ""
    return ", ".join(f"`{option} {value}{more}`" for option in action.option_strings)
