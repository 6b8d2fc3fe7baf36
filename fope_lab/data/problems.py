"""The error of data that cannot be described, read or used."""

from __future__ import annotations

from fope_lab.config.problems import ConfigError


class DataError(ConfigError):
    """Data that cannot be described, read or used; `problems` holds everything that is wrong."""
