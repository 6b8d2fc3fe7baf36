"""Watches the Ray of a run, and ends the run with one line when Ray dies.

Without its raylet or GCS, Ray ends the driver itself: after up to a minute, with its logs on the
terminal, and without a word on what to do.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ray._private import worker

from fope_lab.config.environment import WRONG_INPUT
from fope_lab.orchestration.cluster_address import answers_as_ray

GO_ON = "run the same command again: it goes on from the last checkpoints"
OWN_SECONDS, JOINED_SECONDS = 0.1, 1.0
"""How often a Ray of our own is looked at, and a cluster that the run has joined."""
SILENT_SECONDS, LOST_SECONDS = 5.0, 45.0
"""How long a cluster's head may be silent before that is told, and before the run ends. Ray gives
up after a minute; a head that keeps its state elsewhere may come back before."""
_RAYLET = "raylet"
_NAMES = {"gcs_server": "the process that keeps Ray's state (GCS)", _RAYLET: "Ray's raylet"}
_SHOW_CURSOR = "\x1b[?25h"  # a live view hides it


@contextlib.contextmanager
def ending_with_own_ray(clean_up: Callable[[], None]) -> Iterator[None]:
    """While a Ray of our own runs: if it dies, call `clean_up`, print a line, end the process."""
    node: Any = worker._global_node

    def look() -> str | None:
        dead = [_NAMES[kind] for kind, _ in node.dead_processes() if kind in _NAMES]
        return f"{dead[0]} has died" if dead else None

    def end() -> None:
        node.kill_all_processes(check_alive=False, allow_graceful=False)
        clean_up()

    with _watching(look, OWN_SECONDS, end):
        yield


@contextlib.contextmanager
def ending_with_cluster() -> Iterator[None]:
    """While a joined cluster runs: if its head or this node's raylet dies, print a line and end the
    process. The leases go stale: on other nodes, trials may still run."""
    node = worker._global_node
    if node is None:  # Ray's client raises an error of its own
        yield
        return
    lost = f"head of the Ray cluster at {node.gcs_address} does not answer"
    heard, told = time.monotonic(), False

    def look() -> str | None:
        nonlocal heard, told
        if not _is_open(node.raylet_socket_name):
            return f"{_NAMES[_RAYLET]} on this machine has died"
        with contextlib.suppress(OSError):
            answers_as_ray(node.gcs_address)
            heard, told = time.monotonic(), False
        silent = time.monotonic() - heard
        if silent > SILENT_SECONDS and not told:
            told = True
            print(f"The {lost}; waiting for it.", file=sys.stderr, flush=True)
        return f"the {lost}" if silent > LOST_SECONDS else None

    with _watching(look, JOINED_SECONDS):
        yield


@contextlib.contextmanager
def _watching(
    look: Callable[[], str | None], seconds: float, end: Callable[[], None] | None = None
) -> Iterator[None]:
    """Call `look` every so often; if it names a loss, print it, call `end`, and exit."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(seconds):
            lost = look()
            if lost and not over.is_set():
                cursor = _SHOW_CURSOR if sys.stdout.isatty() else ""
                print(f"{cursor}error: {lost}; {GO_ON}", file=sys.stderr, flush=True)
                if end is not None:
                    with contextlib.suppress(Exception):  # the next run cleans up
                        end()
                os._exit(WRONG_INPUT)  # Ray's own shutdown would wait for dead processes

    thread = threading.Thread(target=watch, name="fope-lab-ray-watch", daemon=True)
    thread.start()
    try:
        with _without_raylet_log():
            yield
    finally:
        over.set()
        thread.join(timeout=seconds)


@contextlib.contextmanager
def _without_raylet_log() -> Iterator[None]:
    """Keep Ray from printing the log of a raylet that has died: one line says it."""
    printed = worker.print_to_stdstream

    def print_other(data: Mapping[str, Any], *args: Any, **options: Any) -> None:
        if not any(str(line).startswith("Raylet is terminated") for line in data["lines"]):
            printed(data, *args, **options)

    worker.print_to_stdstream = print_other
    try:
        yield
    finally:
        worker.print_to_stdstream = printed


def _is_open(path: str) -> bool:
    """Whether a process has a Unix socket open; True where the system does not tell."""
    try:  # connecting would leave a line in the raylet's log each time
        return os.fsencode(path) in Path("/proc/net/unix").read_bytes()
    except OSError:
        return True
