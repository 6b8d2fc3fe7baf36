"""What an error of MLflow means, and the single line that says so."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from fope_lab.store.problems import first_line
from fope_lab.tracking.errors import TrackingError, UnreachableError
from fope_lab.tracking.uris import shown, without_secrets

REFUSALS = (
    "INVALID_PARAMETER_VALUE",
    "BAD_REQUEST",
    "INVALID_STATE",
    "RESOURCE_DOES_NOT_EXIST",
    "RESOURCE_ALREADY_EXISTS",
)
"""MLflow's error codes that concern a single request; the next request may succeed."""


def concerns_one_run(error: Exception) -> bool:
    """Whether an error affects a single run: a refused request, or an unreadable folder."""
    if is_damage(error) or is_locked(error):
        return False
    if getattr(error, "error_code", None) in REFUSALS:
        return True
    return isinstance(error, OSError | ValueError | TypeError | KeyError)


def is_damage(error: BaseException) -> bool:
    """Whether SQLite found that the file is no database, or that its content is damaged."""
    codes = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return any(code in codes for code in sqlite_codes(error))


def is_locked(error: BaseException) -> bool:
    """Whether SQLite gave up because another process holds the lock of the database."""
    return any(code == sqlite3.SQLITE_BUSY for code in sqlite_codes(error))


def sqlite_codes(error: BaseException) -> Iterator[int]:
    """The primary result codes of SQLite's errors among an error and its causes."""
    for cause in _chain(error):
        code = getattr(cause, "sqlite_errorcode", None)
        if isinstance(code, int):
            yield code & 0xFF


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
    database = any(isinstance(e, sqlalchemy.exc.DBAPIError | sqlite3.Error) for e in causes)
    kind = UnreachableError if database else TrackingError
    return kind(f"MLflow at {address}: {one_line(error, uri)}")


def one_line(error: BaseException, uri: str) -> str:
    """The first line of an error's text, without the secrets of `uri`."""
    return first_line(Exception(without_secrets(str(error) or type(error).__name__, uri)))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, its cause, the cause of that, and so on."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
