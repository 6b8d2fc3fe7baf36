"""`fope-lab logs`: print the log of a stage."""

from __future__ import annotations

import argparse

from fope_lab.cli.shared_options import add_stage, add_store, argument
from fope_lab.config.environment import OK

HELP = "print the log of a stage's latest attempt"
ARGUMENTS = (
    add_stage,
    add_store,
    argument(
        "--follow",
        action="store_true",
        help="keep printing new lines until no process works on the stage",
    ),
    argument("--all", action="store_true", help="print the logs of all attempts, oldest first"),
)


def run(options: argparse.Namespace) -> int:
    """Print the stage's state and its log; returns the exit code."""
    from fope_lab.housekeeping.known_stages import find_known_stage
    from fope_lab.housekeeping.stage_log import StageLog
    from fope_lab.store import Store

    stage = find_known_stage(Store.existing(options.store), options.stage)
    log = StageLog(stage.folder, stage.title, every_attempt=options.all)
    print(log.summary())
    if options.follow:
        for text in log.follow():
            print(text, end="", flush=True)
        print(log.summary())
    else:
        print(log.read(), end="")
    return OK
