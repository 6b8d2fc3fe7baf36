"""Errors of MLflow, each described in a single line."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fope_lab.config.errors import UserError
from fope_lab.store.problems import first_line

REFUSALS = (
    "INVALID_PARAMETER_VALUE",
    "BAD_REQUEST",
    "INVALID_STATE",
    "RESOURCE_DOES_NOT_EXIST",
    "RESOURCE_ALREADY_EXISTS",
)
"""MLflow's error codes that concern a single request; the next request may succeed."""


class TrackingError(UserError):
    """MLflow can't be used or is not up to date; `sync` finishes later from the store."""


def concerns_one_run(error: Exception) -> bool:
    """Whether an error affects a single run: a refused request, or an unreadable folder."""
    if getattr(error, "error_code", None) in REFUSALS:
        return True
    return isinstance(error, OSError | ValueError | TypeError | KeyError)


def readable(error: BaseException, uri: str) -> str:
    """A single line that says why uploading to `uri` stopped."""
    if isinstance(error, TrackingError):
        return str(error)
    import requests
    import urllib3

    causes = list(_chain(error))
    if any(isinstance(e, requests.Timeout | urllib3.exceptions.ReadTimeoutError) for e in causes):
        return f"MLflow at {shown(uri)} did not answer in time"
    if any(isinstance(e, requests.ConnectionError) for e in causes):
        return f"no MLflow answers at {shown(uri)}"
    return f"MLflow at {shown(uri)}: {first_line(error)}"


def shown(uri: str) -> str:
    """`uri` without a user name and password."""
    return re.sub(r"//[^/@]*@", "//…@", uri)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, its cause, the cause of that, and so on."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
