"""Settings of MLflow, made before its first use."""

from __future__ import annotations

import logging
import os
import warnings

from fope_lab.tracking.patience import SILENCE

ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": f"{SILENCE:.0f}",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
"""Defaults that keep a run from waiting for a dead server, and MLflow from writing to the terminal.
Values that the user has set take precedence."""
LOGGERS = ("mlflow", "alembic", "urllib3.connectionpool")
"""What would write to the terminal. Every logged error is also raised, and reported once."""
CONNECTIONS = 1
"""How often to try to connect to a database; MLflow would try for 100 s and print each error."""


def quiet_mlflow() -> None:
    """Import mlflow, which takes 2 s, so that it neither retries nor prints."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import mlflow.store.db.utils as databases

    databases.MAX_RETRY_COUNT = CONNECTIONS
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", module=r"alembic\.")
