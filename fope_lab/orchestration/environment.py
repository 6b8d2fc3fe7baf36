"""Environment variables that Ray reads when it is imported, so they must be set before."""

from __future__ import annotations

import os
import secrets

from fope_lab.orchestration.cluster_address import LOCAL

RAY_DEFAULTS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # relative paths stay relative to the user's folder
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # results are in the store
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # the controller handles signals
    "RAY_AIR_NEW_OUTPUT": "0",  # progress_view.py prints the progress
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # snapshots are never read
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # each watcher would be another process
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_prestart_worker_first_driver": "0",  # a process for each CPU, of which none is used
}
"""What a run changes about Ray; values that the user has set take precedence."""


def prepare_environment(address: str) -> None:
    """Set the variables that a run at `address` needs, except those that the user has set."""
    for name, value in RAY_DEFAULTS.items():
        os.environ.setdefault(name, value)
    if address == LOCAL and "RAY_AUTH_MODE" not in os.environ:
        # Otherwise Ray writes a token into the home folder, and later clusters use it. With a token
        # of its own, nobody else can join this cluster, and no file remains.
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
