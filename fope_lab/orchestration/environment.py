"""The environment variables that Ray reads while it is imported: to be set before that."""

from __future__ import annotations

import os
import secrets

LOCAL = "local"
"""The address of a Ray of our own, made for a run and gone with it."""

# No usage reports, no working directory per trial (paths stay those of the user), no result files
# per trial (the store has them), no progress output (ours), no periodic snapshots (never read), no
# watching over a group of workers beyond whether they live (each watcher is a process more).
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
}


def prepare_environment(address: str) -> None:
    """Set what a run at `address` needs; what the user has set stays."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if address == LOCAL and "RAY_AUTH_MODE" not in os.environ:
        # Left alone, Ray writes a token into the home folder, which later clusters then use. With
        # one of its own, nobody else can join this Ray, and nothing is left behind.
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
