"""Serves MLflow's pages for a store."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from fope_lab.tracking.client import as_tracking_error
from fope_lab.tracking.database import prepare, readable_tables
from fope_lab.tracking.errors import TrackingError
from fope_lab.tracking.server import artifact_folder
from fope_lab.tracking.tracker import Tracker
from fope_lab.tracking.uris import VIEW, default_uri, sqlite_file

MOST_LINKS = 20
"""The most links to prepared views that are printed."""


def serve(store_root: Path, host: str = "127.0.0.1", port: int = 5000) -> int:
    """Serve the store's MLflow database until SIGINT or SIGTERM; returns 0.

    The server's output goes to `mlflow-server.log` in the store. Raises TrackingError if the port
    is not free, the database can't be read, or the server ends by itself.
    """
    _require_free(host, port)
    store_root = store_root.expanduser().absolute()
    store_root.mkdir(parents=True, exist_ok=True)
    uri = default_uri(store_root)
    _require_database(uri)
    command = [
        *(sys.executable, "-m", "mlflow", "server"),
        *("--backend-store-uri", uri),
        *("--artifacts-destination", artifact_folder(store_root).as_uri(), "--serve-artifacts"),
        *("--host", host, "--port", str(port), "--workers", "1"),
        *("--uvicorn-opts", "--log-level warning"),  # no line for every request
    ]
    environment = os.environ | {
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # saves a third of the memory
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    log = store_root / "mlflow-server.log"
    address = f"http://{host}:{port}"
    # It has its own session, so that Ctrl-C reaches it and its processes once, forwarded by us.
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, start_new_session=True
        ) as server,
        _forwarded_signals(server) as received,
    ):
        if _answers(server, address):
            page = f"{address}/#/experiments?{VIEW}"
            line = f"MLflow shows {store_root} at {page} (press Ctrl-C to stop)"
            print("\n".join([line, *view_lines(store_root, address)]), flush=True)
        code = server.wait()
    if received:
        return 0
    tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
    raise TrackingError(f"the MLflow server ended with code {code}:\n{tail}")


def view_lines(store_root: Path, address: str) -> list[str]:
    """A line for each prepared view of the sweeps in a store, and for those that are left out."""
    tracker = Tracker(store_root)
    links = [
        f"  {sweep}, {view}: {link}"
        for sweep in tracker.sweeps()
        for view, link in tracker.view_links(sweep, address).items()
    ]
    more = f"  and {len(links) - MOST_LINKS} more, in the menu Views of each experiment"
    return [*links[:MOST_LINKS], *([more] if len(links) > MOST_LINKS else [])]


def _require_free(host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            reason = error.strerror or str(error)
            if error.errno == errno.EADDRINUSE:
                reason = "another program listens there, perhaps an MLflow that is still running"
            raise TrackingError(
                f"can't serve on {host}:{port}: {reason}. Choose another port with --port."
            ) from error


def _require_database(uri: str) -> None:
    """Make the store's database if it is missing; without mlflow, which would stay in memory."""
    file = sqlite_file(uri)
    assert file is not None
    try:
        if not file.exists() or not readable_tables(file)[0]:
            prepare(file)
    except Exception as error:
        raise as_tracking_error(error, uri) from error


@contextmanager
def _forwarded_signals(server: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Forward SIGINT and SIGTERM to the server's processes, at the second time SIGKILL."""
    received: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL if len(received) > 1 else signal.SIGTERM)

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _answers(server: subprocess.Popen[bytes], address: str) -> bool:
    while server.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=2):
                return True
        except urllib.error.HTTPError:  # it refuses this host's name, so it is up
            return True
        except OSError:
            time.sleep(0.2)
    return False
