"""Watches the processes of a Ray of our own, and ends the run at once when one of them dies.

Without its raylet or GCS, Ray ends the driver itself: after up to a minute, with its logs on the
terminal, and without a word on what to do.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator

from fope_lab.config.exit_codes import WRONG_INPUT

SECONDS = 0.1
GO_ON = "run the same command again: it goes on from the last checkpoints"
_NEEDED = {"gcs_server": "the process that keeps Ray's state (GCS)", "raylet": "Ray's raylet"}
_SHOW_CURSOR = "\x1b[?25h"  # a live view hides it


@contextlib.contextmanager
def ending_with_ray(clean_up: Callable[[], None]) -> Iterator[None]:
    """While Ray runs: if it dies, call `clean_up`, print one line and end this process."""
    from ray._private import worker

    node, over = worker._global_node, threading.Event()

    def watch() -> None:
        while not over.wait(SECONDS):
            dead = [kind for kind, _ in node.dead_processes() if kind in _NEEDED]
            if dead and not over.is_set():
                end(dead[0])

    def end(kind: str) -> None:
        cursor = _SHOW_CURSOR if sys.stdout.isatty() else ""
        print(f"{cursor}error: {_NEEDED[kind]} has died; {GO_ON}", file=sys.stderr, flush=True)
        with contextlib.suppress(Exception):  # whatever can't be cleared, the next run clears
            node.kill_all_processes(check_alive=False, allow_graceful=False)
            clean_up()
        # Ray's own way to end would wait for what is dead.
        os._exit(WRONG_INPUT)

    thread = threading.Thread(target=watch, name="fope-lab-ray-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=SECONDS)
