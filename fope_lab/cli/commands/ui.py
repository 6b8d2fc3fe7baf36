"""`fope-lab ui`: browse a store's runs in MLflow."""

from __future__ import annotations

import argparse

from fope_lab.cli.shared_options import add_store, argument, whole_number

HELP = "browse a store's runs in MLflow"
ARGUMENTS = (
    add_store,
    argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)"),
    argument(
        "--port",
        type=whole_number(1, 65535),
        default=5000,
        metavar="N",
        help="port to listen on (default: 5000)",
    ),
)


def run(options: argparse.Namespace) -> int:
    """Serve MLflow until it is interrupted; returns the exit code."""
    from fope_lab.store import Store
    from fope_lab.tracking import serve

    return serve(Store.existing(options.store).root, options.host, options.port)
