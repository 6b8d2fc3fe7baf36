"""MLflow's client: made quiet, what its errors mean, and how long to wait for it."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sqlite3
import threading
import time
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fope_lab.store.records import first_line
from fope_lab.tracking.errors import DamagedDatabaseError, TrackingError, UnreachableError
from fope_lab.tracking.uris import shown, without_secrets

if TYPE_CHECKING:
    from mlflow import MlflowClient

SILENCE = 8.0
"""Seconds without an answer after which MLflow counts as dead, or MLFLOW_HTTP_REQUEST_TIMEOUT."""
SLOWEST = 50_000.0
"""Bytes per second of the slowest connection that a file is sent over."""
ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": f"{SILENCE:.0f}",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
"""Defaults: never wait for a dead server, never write to the terminal."""
LOGGERS = ("mlflow", "alembic", "urllib3.connectionpool")
"""What would write to the terminal. Every logged error is also raised, and reported once."""
REFUSALS = (
    "INVALID_PARAMETER_VALUE",
    "BAD_REQUEST",
    "INVALID_STATE",
    "RESOURCE_DOES_NOT_EXIST",
    "RESOURCE_ALREADY_EXISTS",
)
"""MLflow's error codes that concern a single request; the next request may succeed."""


def quiet_mlflow() -> None:
    """Import mlflow, which takes 2 s, so that it neither retries nor prints."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import mlflow.store.db.utils as databases

    databases.MAX_RETRY_COUNT = 1  # else it tries to connect for 100 s, and prints each error
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", module=r"alembic\.")


class Patience:
    """Waits for a thread as long as MLflow answers it; its own work between requests is free."""

    def __init__(self) -> None:
        self._since: float | None = None  # the request, or the last sign of life during it
        self._extra = 0.0

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """A request to MLflow is under way in this block."""
        self._since = time.monotonic()
        try:
            yield
        finally:
            self._since = None

    @contextlib.contextmanager
    def sending(self, size: int) -> Iterator[None]:
        """The requests in this block send a file of `size` bytes, which may take its time."""
        self._extra = size / SLOWEST
        try:
            yield
        finally:
            self._extra = 0.0

    def sign(self) -> None:
        """MLflow is at work on the request."""
        if self._since is not None:
            self._since = time.monotonic()

    def wait(self, thread: threading.Thread, limit: float = math.inf) -> bool:
        """Wait until `thread` ends; returns False if MLflow is silent for too long before that,
        or after `limit` seconds."""
        silence = SILENCE
        with contextlib.suppress(ValueError):
            silence = max(silence, float(os.environ.get("MLFLOW_HTTP_REQUEST_TIMEOUT", "0")))
        start = time.monotonic()
        while True:
            thread.join(0.05)
            if not thread.is_alive():
                return True
            now, since = time.monotonic(), self._since
            if since is not None and now - since > silence + self._extra:
                return False
            if now - start > limit:
                return False


class PatientClient:
    """An MlflowClient that notes in `patience` when it is asked and when it has answered."""

    def __init__(self, client: MlflowClient, patience: Patience) -> None:
        self._client, self._patience = client, patience

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)
        if not callable(call):
            return call

        def asked(*args: Any, **settings: Any) -> Any:
            with self._patience.asking():
                return call(*args, **settings)

        return asked


def concerns_one_run(error: Exception) -> bool:
    """Whether an error affects a single run: a refused request, or an unreadable folder."""
    if is_damage(error) or is_locked(error):
        return False
    if getattr(error, "error_code", None) in REFUSALS:
        return True
    return isinstance(error, OSError | ValueError | TypeError | KeyError)


def is_damage(error: BaseException) -> bool:
    """Whether SQLite found the file not to be a database, or its content damaged."""
    return not _sqlite_codes(error).isdisjoint({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def is_locked(error: BaseException) -> bool:
    """Whether SQLite gave up because another process holds the lock of the database."""
    return sqlite3.SQLITE_BUSY in _sqlite_codes(error)


def _sqlite_codes(error: BaseException) -> set[int]:
    codes = (getattr(cause, "sqlite_errorcode", None) for cause in _chain(error))
    return {code & 0xFF for code in codes if isinstance(code, int)}


def as_tracking_error(error: Exception, uri: str) -> TrackingError:
    """The error to raise for one that ended an upload to `uri`."""
    if isinstance(error, TrackingError):
        return error
    import requests
    import sqlalchemy.exc
    import urllib3

    address = shown(uri)
    causes = tuple(_chain(error))
    if any(isinstance(e, requests.Timeout | urllib3.exceptions.ReadTimeoutError) for e in causes):
        return UnreachableError(f"MLflow at {address} did not answer in time")
    if any(isinstance(e, requests.ConnectionError) for e in causes):
        return UnreachableError(f"no MLflow answers at {address}")
    if is_locked(error):
        return UnreachableError(f"the MLflow database {address} is locked by another process")
    fault = f"MLflow at {address}: {one_line(error, uri)}"
    if is_damage(error):
        return DamagedDatabaseError(fault)
    database = any(isinstance(e, sqlalchemy.exc.DBAPIError | sqlite3.Error) for e in causes)
    kind = UnreachableError if database else TrackingError
    return kind(fault)


def one_line(error: BaseException, uri: str) -> str:
    """The first line of an error's text, without the secrets of `uri`."""
    return first_line(Exception(without_secrets(str(error) or type(error).__name__, uri)))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
