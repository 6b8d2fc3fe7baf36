"""The errors that tracking raises, each described in a single line."""

from __future__ import annotations

from fope_lab.config.problems import UserError


class TrackingError(UserError):
    """MLflow can't be used or is not up to date; `sync` finishes later from the store."""


class UnreachableError(TrackingError):
    """MLflow can't be used at all: trying the next sweep is pointless."""


class DamagedDatabaseError(UnreachableError):
    """The file of a SQLite database holds no database that MLflow can use."""

    def __init__(self, fault: str) -> None:
        super().__init__(f"{fault}. Move it away: `fope-lab sync` fills a new one from the store")
