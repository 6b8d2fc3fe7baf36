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
    arguments: Sequence[Callable[[argparse.ArgumentParser], Any]] = ()
    run: Callable[[argparse.Namespace], int] | None = None
    epilog: str | None = None
    actions: Sequence[Command] = ()


def argument(*names: str, **settings: Any) -> AddArgument:
    """An argument with the names and settings of `ArgumentParser.add_argument`.

    A `default` that is a function is called whenever a parser is made.
    """

    def add(parser: argparse._ActionsContainer) -> None:
        default = settings.get("default")
        own = {"default": default()} if callable(default) else {}
        parser.add_argument(*names, **{**settings, **own})

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
    nargs="+",
    metavar="FILE",
    help="a sweep file, a folder of sweep files, or the name of a"
    " sweep that comes with fope-lab, such as quickstart",
)
add_file = argument(
    "file",
    metavar="FILE",
    help="a sweep file, or the name of a sweep that comes with fope-lab, such as quickstart",
)
add_stage = argument(
    "stage",
    metavar="STAGE",
    help="a stage of the store: its name in the sweep, its label (as `fope-lab status` prints it)"
    " or the beginning of its key",
)
add_json = argument("--json", action="store_true", help="print machine-readable JSON")
add_plugins = argument(
    "--plugins",
    nargs="+",
    default=[],
    metavar="PLUGIN",
    help="code of one's own that the command needs: ./mine.py, or the name of a module",
)
add_store = argument(
    "--store",
    type=_folder,
    default=default_store,
    metavar="DIR",
    help="folder that holds the stages (default: FOPE_LAB_STORE, or ./fope-store)",
)
add_tracking_uri = argument(
    "--tracking-uri",
    default=default_tracking_uri,
    metavar="URI",
    help="MLflow server or database (default: MLFLOW_TRACKING_URI, or mlflow.db in the store)",
)
add_address = argument(
    "--address",
    type=_address,
    default=default_address,
    help="Ray cluster to run on (default: RAY_ADDRESS, or a local one)",
)
