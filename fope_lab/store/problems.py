"""The errors that the store and its leases raise."""

from __future__ import annotations

from fope_lab.config.problems import UserError


class StoreError(UserError):
    """The store can't be used; the message says where and why."""


class StageDoneError(StoreError):
    """The stage is already finished, so there is nothing to begin."""


class LeaseLostError(StoreError):
    """A newer attempt took over the stage while this one was still running."""


def first_line(error: BaseException) -> str:
    """The first line of an error's text, cut at 300 characters, or the name of its type."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
