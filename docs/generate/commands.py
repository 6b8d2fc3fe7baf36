"""The reference of commands, from their own parsers."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from typing import Any

from docs.generate.markdown import anchor, block, plain, table
from fope_lab.cli.app import COMMANDS

PACKAGE = "fope_lab.cli.commands"


def commands() -> Iterator[tuple[str, Any]]:
    """Every command and action, as the words that are typed and its module."""
    for name in COMMANDS:
        module = importlib.import_module(f"{PACKAGE}.{name}")
        yield name, module
        for action in getattr(module, "ACTIONS", ()):
            yield f"{name} {action}", importlib.import_module(f"{PACKAGE}.{name}.{action}")


def overview(_: str) -> str:
    """A table of all commands, each linked to its section."""
    rows = [
        (f"[`fope-lab {name}`](#{anchor(f'fope-lab {name}')})", plain(module.HELP))
        for name, module in commands()
    ]
    return table(("command", "what it does"), rows)


def reference(_: str) -> str:
    """A section for each command: its summary, its usage and its arguments."""
    return "\n\n".join(_section(name, module) for name, module in commands())


def parser_of(name: str, module: Any) -> argparse.ArgumentParser:
    """The parser of a command, as `fope-lab NAME --help` has it."""
    parser = argparse.ArgumentParser(
        prog=f"fope-lab {name}",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, width=96),
    )
    for add in module.ARGUMENTS:
        add(parser)
    return parser


def _section(name: str, module: Any) -> str:
    heading = f"## fope-lab {name}\n\n{plain(module.HELP[0].upper() + module.HELP[1:])}."
    if hasattr(module, "ACTIONS"):
        return heading
    parser = parser_of(name, module)
    rows = [
        (_spelling(action), plain(action.help or ""))
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction)
    ]
    usage = block(parser.format_usage().removeprefix("usage: "), "sh")
    arguments = [table(("argument", "meaning"), rows)] if rows else []
    epilog = [plain(text)] if (text := getattr(module, "EPILOG", None)) else []
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
