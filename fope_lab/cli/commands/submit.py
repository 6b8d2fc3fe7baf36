"""`fope-lab submit`: run a sweep on a Ray cluster."""

from __future__ import annotations

import argparse

from fope_lab.cli.inputs import load_single_sweep
from fope_lab.cli.shared_options import add_file, argument

HELP = "run a sweep on a Ray cluster, as a Ray job"
ARGUMENTS = (
    add_file,
    argument(
        "--address",
        required=True,
        metavar="URL",
        help="address of the cluster's dashboard, such as http://HEAD:8265",
    ),
    argument("--store", metavar="DIR", help="the store, by its path on the cluster"),
    argument("--tracking-uri", metavar="URI", help="MLflow, as the cluster reaches it"),
    argument("--no-wait", action="store_true", help="return at once instead of following the log"),
)


def run(options: argparse.Namespace) -> int:
    """Submit the job, follow its log, and return its exit code."""
    from fope_lab.orchestration.submit import submit

    return submit(
        load_single_sweep(options.file),
        options.address,
        store=options.store,
        tracking_uri=options.tracking_uri,
        wait=not options.no_wait,
    )
