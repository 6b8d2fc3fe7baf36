"""`fope-lab store`: look into the folder that holds all stages, and tidy it."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from fope_lab.cli.console import WHOLE_ROWS, make_console, print_json
from fope_lab.cli.shared_options import (
    TABLE_WIDTH,
    Command,
    add_json,
    add_stage,
    add_store,
    argument,
)
from fope_lab.config.environment import FAILED, OK
from fope_lab.config.problems import counted

if TYPE_CHECKING:
    from fope_lab.store import StageFolder


def _list(options: argparse.Namespace) -> int:
    from fope_lab.cli.render.store import contents_json, print_contents
    from fope_lab.housekeeping.contents import contents
    from fope_lab.store import Store

    found = contents(Store.existing(options.store))
    if options.json:
        print_json(contents_json(found))
    else:
        print_contents(found, make_console(elsewhere=WHOLE_ROWS))
    return OK


def _show(options: argparse.Namespace) -> int:
    from fope_lab.cli.render.store import print_details
    from fope_lab.housekeeping.contents import stage_details
    from fope_lab.housekeeping.known_stages import find_known_stage
    from fope_lab.store import Store

    store = Store.existing(options.store)
    print_details(stage_details(store, find_known_stage(store, options.stage)), make_console())
    return OK


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
    from fope_lab.store.attempts import LeaseHeldError

    try:
        return f"moved to {folder.set_aside(owner, f'damaged: {reason}')}"
    except LeaseHeldError as error:
        return f"not moved, because a driver works on it ({error})"


def _verify(options: argparse.Namespace) -> int:
    from rich.progress import track

    from fope_lab.store import Store
    from fope_lab.store.attempts import driver_name

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
    summary = f"{store}: {count}, {damaged or 'none'} damaged"
    console.print(summary, soft_wrap=True, highlight=False, markup=False)
    return FAILED if damaged else OK


def _prune(options: argparse.Namespace) -> int:
    from fope_lab.housekeeping.contents import size_text
    from fope_lab.housekeeping.prune import prunable, remove
    from fope_lab.store import Store, StoreError

    store, console = Store.existing(options.store), make_console()

    def say(line: str) -> None:
        console.print(line, soft_wrap=True, highlight=False, markup=False)

    found = prunable(store)
    for note in found.notes:
        say(f"note: {note}")
    if not found.waste:
        say(f"{store}: nothing to remove")
        return OK
    for waste in found.waste:
        say(f"{size_text(waste.size):>8}  {waste.why}: {waste.path.relative_to(store.root)}")
    say(f"{size_text(found.size):>8}  in all, in {store}")
    if not options.yes and not sys.stdin.isatty():
        raise StoreError("nothing was removed: there is no terminal to ask at; add --yes")
    if not options.yes and not _agrees():
        say("nothing was removed")
        return OK
    removed, left = remove(store, found)
    for line in left:
        say(f"left: {line}")
    say(f"removed {size_text(removed)}")
    return OK


def _agrees() -> bool:
    print("Remove all of this? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


ACTIONS = (
    Command(
        "list",
        "list the stages of a store with their states, sizes and ages, largest first",
        (add_store, add_json),
        _list,
        epilog=TABLE_WIDTH,
    ),
    Command(
        "show",
        "show a stage: its configuration, attempts, parents, children and files",
        (add_stage, add_store),
        _show,
    ),
    Command(
        "verify",
        "read every file that counts in a store and name the damaged ones",
        (add_store, add_repair),
        _verify,
    ),
    Command(
        "prune",
        "remove stages that no recorded sweep has, and what killed and repeated attempts left",
        (
            add_store,
            argument("--yes", action="store_true", help="remove what is listed without asking"),
        ),
        _prune,
    ),
)
COMMANDS = (Command("store", "list, show, check and remove what a store holds", actions=ACTIONS),)
