"""`fope-lab store verify`: read every file that counts and name the damaged ones."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fope_lab.cli.console import make_console
from fope_lab.cli.shared_options import add_store
from fope_lab.config.environment import FAILED, OK
from fope_lab.config.problems import counted

if TYPE_CHECKING:
    from fope_lab.store import StageFolder

HELP = "read every file that counts in a store and name the damaged ones"


def add_repair(parser: argparse._ActionsContainer) -> None:
    """Add the option --repair, which moves damaged output away."""
    parser.add_argument(
        "--repair",
        action="store_true",
        help="move the output of finished stages with damaged checkpoints away, so that the next"
        " run repeats them; a run finds other damage by itself",
    )


def _move(folder: StageFolder, owner: str, reason: str) -> str:
    """Move the output of a stage away; returns what to say of it."""
    from fope_lab.store.lease import LeaseHeldError

    try:
        return f"moved to {folder.set_aside(owner, f'damaged: {reason}')}"
    except LeaseHeldError as error:
        return f"not moved, because a driver works on it ({error})"


ARGUMENTS = (add_store, add_repair)


def run(options: argparse.Namespace) -> int:
    """Print the damaged files of each stage; returns the exit code."""
    from rich.progress import track

    from fope_lab.store import Store
    from fope_lab.store.lease import driver_name

    store, console, owner = Store.existing(options.store), make_console(), driver_name()
    folders, damaged = store.folders(), 0
    progress = make_console(stderr=True)
    for folder in track(folders, "verifying", console=progress, transient=True):
        names = folder.damage()
        if not names:
            continue
        damaged += 1
        reason = ", ".join(names)
        text = f"damaged {folder.path}: {reason}"
        if folder.is_done() and options.repair:
            text += f"; {_move(folder, owner, reason)}"
        elif folder.is_done():
            text += "; --repair moves its output away, and the next run repeats the stage"
        else:
            text += "; the next run does not use it"
        console.print(text, soft_wrap=True, highlight=False, markup=False)
    count = counted(len(folders))
    summary = f"{store.root}: {count}, {damaged or 'none'} damaged"
    console.print(summary, soft_wrap=True, highlight=False, markup=False)
    return FAILED if damaged else OK
