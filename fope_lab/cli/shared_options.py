"""Options that several commands share, each declared once."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fope_lab.config.environment import default_address, default_store, default_tracking_uri

CHECKPOINT = (
    "a checkpoint folder, a Hugging Face folder, hf:NAME@COMMIT, or a stage of the store: its name,"
    " its label, its folder or the beginning of its key"
)
TABLE_WIDTH = (
    "A table is as wide as the terminal. In a pipe or a file its rows are whole, however long they"
    " are. The environment variable COLUMNS sets the width in either case."
)
"""What the help of a command says below its arguments if its table is there to be searched."""
AddArgument = Callable[[argparse._ActionsContainer], Any]
"""Adds an argument, or a group of them, to a command's parser."""


@dataclass(frozen=True)
class Command:
    """A command, or an action of one: what it takes, and the function that returns its exit code.

    `epilog` is what its help says below the arguments. A command with `actions` has nothing else.
    """

    name: str
    help: str
    arguments: Sequence[AddArgument] = ()
    run: Callable[[argparse.Namespace], int] | None = None
    epilog: str | None = None
    actions: Sequence[Command] = ()


def command(
    name: str, help: str, *arguments: AddArgument, epilog: str | None = None
) -> Callable[[Callable[[argparse.Namespace], int]], Command]:
    """Make the decorated function, which takes the parsed options, a command."""
    return lambda run: Command(name, help, arguments, run, epilog)


def argument(name: str, help: str, metavar: str | None = None, **settings: Any) -> AddArgument:
    """An argument with the settings of `ArgumentParser.add_argument`.

    A `default` that is a function is called whenever a parser is made.
    """

    def add(parser: argparse._ActionsContainer) -> None:
        default = settings.get("default")
        own = {"default": default()} if callable(default) else {}
        own |= {} if metavar is None else {"metavar": metavar}
        parser.add_argument(name, help=help, **{**settings, **own})

    return add


def flag(name: str, help: str) -> AddArgument:
    """An option that is on or off."""
    return argument(name, help, action="store_true")


def words(name: str, help: str, metavar: str) -> AddArgument:
    """An option that takes one or more words, and none by default."""
    return argument(name, help, metavar, nargs="+", default=[])


def count(name: str, help: str, last: int | None = None, default: int | None = None) -> AddArgument:
    """An option that takes a whole number from 1."""
    return argument(name, help, "N", type=whole_number(1, last), default=default)


def exclusive(*arguments: AddArgument) -> AddArgument:
    """Arguments of which a command takes one at most."""

    def add(parser: argparse._ActionsContainer) -> None:
        group = parser.add_mutually_exclusive_group()
        for add_one in arguments:
            add_one(group)

    return add


def number(
    first: float,
    last: float | None = None,
    noun: str = "a number",
    kind: Callable[[str], float] = float,
) -> Callable[[str], float]:
    """An argparse type: a finite number from `first` to `last`, or without an upper limit."""
    allowed = f"at least {first}" if last is None else f"{first} to {last}"

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not first <= value < math.inf or (last is not None and value > last):
            raise argparse.ArgumentTypeError(f"found {text!r}, needs {noun}, {allowed}")
        return value

    return parse


def whole_number(first: int, last: int | None = None) -> Callable[[str], float]:
    """An argparse type: a whole number from `first` to `last`, or without an upper limit."""
    return number(first, last, "a whole number", int)


def _folder(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError(f"found {text!r}, needs the path of a folder")
    return text


def _address(text: str) -> str:
    from fope_lab.orchestration.cluster_address import ClusterError, checked_address

    try:
        return checked_address(text)
    except ClusterError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


add_files = argument(
    "files",
    "a sweep file, a folder of sweep files, or the name of a sweep that comes with fope-lab, such"
    " as quickstart",
    "FILE",
    nargs="+",
)
add_file = argument(
    "file",
    "a sweep file, or the name of a sweep that comes with fope-lab, such as quickstart",
    "FILE",
)
add_stage = argument(
    "stage",
    "a stage of the store: its name in the sweep, its label (as `fope-lab status` prints it)"
    " or the beginning of its key",
    "STAGE",
)
add_json = flag("--json", "print machine-readable JSON")
add_plugins = words(
    "--plugins",
    "code of one's own that the command needs: ./mine.py, or the name of a module",
    "PLUGIN",
)
add_store = argument(
    "--store",
    "folder that holds the stages (default: FOPE_LAB_STORE, or ./fope-store)",
    "DIR",
    type=_folder,
    default=default_store,
)
add_tracking_uri = argument(
    "--tracking-uri",
    "MLflow server or database (default: MLFLOW_TRACKING_URI, or mlflow.db in the store)",
    "URI",
    default=default_tracking_uri,
)
add_address = argument(
    "--address",
    "Ray cluster to run on (default: RAY_ADDRESS, or a local one)",
    type=_address,
    default=default_address,
)
