"""`fope-lab store`: look into the folder that holds all stages, and tidy it."""

from __future__ import annotations

import argparse
import sys
import time

from fope_lab.cli import shared_options as shared
from fope_lab.cli.shared_options import command, flag
from fope_lab.config.console import WHOLE_ROWS, make_console, print_json, say
from fope_lab.config.environment import FAILED, OK
from fope_lab.config.problems import counted


@command(
    "list",
    "list the stages of a store with their states, sizes and ages, largest first",
    shared.add_store,
    shared.add_json,
    epilog=shared.TABLE_WIDTH,
)
def list_stages(options: argparse.Namespace) -> int:
    from fope_lab.cli.housekeeping.contents import contents
    from fope_lab.cli.render.store import contents_json, print_contents
    from fope_lab.store.root import Store

    store = Store.existing(options.store)
    stages, other_bytes = contents(store)
    if options.json:
        print_json(contents_json(store, stages, other_bytes))
    else:
        console = make_console(elsewhere=WHOLE_ROWS)
        print_contents(store, stages, other_bytes, time.time(), console)
    return OK


@command(
    "show",
    "show a stage: its configuration, attempts, parents, children and files",
    shared.add_stage,
    shared.add_store,
)
def show(options: argparse.Namespace) -> int:
    from fope_lab.cli.housekeeping.known_stages import find_known_stage
    from fope_lab.cli.render.store import stage_page
    from fope_lab.store.root import Store

    store = Store.existing(options.store)
    say(make_console(), *stage_page(store, find_known_stage(store, options.stage)))
    return OK


@command(
    "verify",
    "read every file that counts in a store and name the damaged ones",
    shared.add_store,
    flag(
        "--repair",
        "move the output of finished stages with damaged checkpoints away, so that the"
        " next run repeats them; a run finds other damage by itself",
    ),
)
def verify(options: argparse.Namespace) -> int:
    from rich.progress import track

    from fope_lab.store.attempts import LeaseHeldError, driver_name
    from fope_lab.store.root import Store

    store, console = Store.existing(options.store), make_console()
    folders, damaged = store.folders(), 0
    progress = make_console(stderr=True)
    for folder in track(folders, "verifying", console=progress, transient=True):
        names = ", ".join(folder.damage())
        if not names:
            continue
        damaged += 1
        fate = "the next run does not use it"
        if folder.is_done() and options.repair:
            try:
                fate = f"moved to {folder.set_aside(driver_name(), f'damaged: {names}')}"
            except LeaseHeldError as error:
                fate = f"not moved, because a driver works on it ({error})"
        elif folder.is_done():
            fate = "--repair moves its output away, and the next run repeats the stage"
        say(console, f"damaged {folder.path}: {names}; {fate}")
    say(console, f"{store}: {counted(len(folders))}, {damaged or 'none'} damaged")
    return FAILED if damaged else OK


@command(
    "prune",
    "remove stages that no recorded sweep has, and what killed and repeated attempts left",
    shared.add_store,
    flag("--yes", "remove what is listed without asking"),
)
def prune(options: argparse.Namespace) -> int:
    from fope_lab.cli.housekeeping.contents import size_text
    from fope_lab.cli.housekeeping.prune import prunable, remove
    from fope_lab.store.records import StoreError
    from fope_lab.store.root import Store

    store, console = Store.existing(options.store), make_console()
    found, notes = prunable(store)
    say(console, *(f"note: {note}" for note in notes))
    if not found:
        say(console, f"{store}: nothing to remove")
        return OK
    for waste in found:
        path = waste.path.relative_to(store.root)
        say(console, f"{size_text(waste.size):>8}  {waste.why}: {path}")
    total = size_text(sum(waste.size for waste in found))
    say(console, f"{total:>8}  in all, in {store}")
    if not options.yes:
        if not sys.stdin.isatty():
            raise StoreError("nothing was removed: there is no terminal to ask at; add --yes")
        print("Remove all of this? [y/N] ", end="", flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            say(console, "nothing was removed")
            return OK
    removed, left = remove(store, found)
    say(console, *(f"left: {line}" for line in left), f"removed {size_text(removed)}")
    return OK


ACTIONS = (list_stages, show, verify, prune)
COMMANDS = (
    shared.Command("store", "list, show, check and remove what a store holds", actions=ACTIONS),
)
