"""What goes wrong with MLflow, in a line each."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fope_lab.config.errors import UserError

# An answer about one request only: the next one may well succeed.
REFUSALS = (
    "INVALID_PARAMETER_VALUE",
    "BAD_REQUEST",
    "INVALID_STATE",
    "RESOURCE_DOES_NOT_EXIST",
    "RESOURCE_ALREADY_EXISTS",
)


class TrackingError(UserError):
    """MLflow is not up to date: where, and why. The store is whole; `sync` finishes later."""


def concerns_one_run(error: Exception) -> bool:
    """Whether other runs can be sent all the same: MLflow refused, or a folder is unreadable."""
    if getattr(error, "error_code", None) in REFUSALS:
        return True
    return isinstance(error, OSError | ValueError | TypeError | KeyError)


def readable(error: BaseException, uri: str) -> str:
    """One line on why a projection to `uri` stopped."""
    if isinstance(error, TrackingError):
        return str(error)
    import requests
    import urllib3

    causes = list(_chain(error))
    if any(isinstance(e, requests.Timeout | urllib3.exceptions.ReadTimeoutError) for e in causes):
        return f"MLflow at {shown(uri)} is too slow to answer"
    if any(isinstance(e, requests.ConnectionError) for e in causes):
        return f"no MLflow answers at {shown(uri)}"
    return f"MLflow at {shown(uri)}: {first_line(error)}"


def first_line(error: BaseException) -> str:
    """The beginning of an error's text, or its type if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


def shown(uri: str) -> str:
    """`uri` without the password that it may hold."""
    return re.sub(r"//[^/@]*@", "//…@", uri)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
