"""Where stages, runs and the cluster are unless somebody says otherwise: the environment's word."""

from __future__ import annotations

import os


def default_store() -> str:
    """The folder of the stages: FOPE_LAB_STORE, or ./fope-store."""
    return os.environ.get("FOPE_LAB_STORE") or "fope-store"


def default_tracking_uri() -> str | None:
    """The MLflow server or database: MLFLOW_TRACKING_URI; None means mlflow.db in the store."""
    return os.environ.get("MLFLOW_TRACKING_URI")


def default_address() -> str:
    """The Ray cluster: RAY_ADDRESS, or a local one."""
    return os.environ.get("RAY_ADDRESS") or "local"
