"""`fope-lab store prune`: remove what nothing refers to."""

from __future__ import annotations

import argparse
import sys

from fope_lab.cli.console import make_console
from fope_lab.cli.shared_options import add_store, argument
from fope_lab.config.environment import OK

HELP = "remove stages that no recorded sweep has, and what killed and repeated attempts left"
ARGUMENTS = (
    add_store,
    argument("--yes", action="store_true", help="remove what is listed without asking"),
)


def run(options: argparse.Namespace) -> int:
    """List what nothing refers to, ask, and remove it; returns the exit code."""
    from fope_lab.housekeeping.prune import prunable, remove
    from fope_lab.housekeeping.wording import size_text
    from fope_lab.store import Store, StoreError

    store, console = Store.existing(options.store), make_console()

    def say(line: str) -> None:
        console.print(line, soft_wrap=True, highlight=False, markup=False)

    found = prunable(store)
    for note in found.notes:
        say(f"note: {note}")
    if not found.waste:
        say(f"{store.root}: nothing to remove")
        return OK
    for waste in found.waste:
        say(f"{size_text(waste.size):>8}  {waste.why}: {waste.path.relative_to(store.root)}")
    say(f"{size_text(found.size):>8}  in all, in {store.root}")
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
