"""The error of an embedding that cannot be built."""

from __future__ import annotations

from fope_lab.config.problems import ConfigError


class EmbeddingError(ConfigError):
    """An embedding that cannot be built; `problems` holds everything that is wrong with it."""
