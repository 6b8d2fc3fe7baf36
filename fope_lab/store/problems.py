"""Why the store, a stage or an attempt can't go on."""

from __future__ import annotations


class StoreError(Exception):
    """The store can't be used: where, and why."""


class StageDoneError(StoreError):
    """This stage is finished: there is nothing to begin."""


class LeaseLostError(StoreError):
    """A newer attempt took over this stage while the present one was still running."""
