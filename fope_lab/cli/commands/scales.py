"""`fope-lab scales`: list the model sizes."""

from __future__ import annotations

import argparse

from fope_lab.cli.console import make_console, print_json
from fope_lab.cli.shared_options import add_json, whole_number
from fope_lab.config.environment import OK

HELP = "list the model sizes: parameters, FLOPs and memory"


def _add_step(parser: argparse.ArgumentParser) -> None:
    step = parser.add_argument_group("step", "The training step whose FLOPs and memory are shown.")
    step.add_argument(
        "--length",
        type=whole_number(1),
        default=2048,
        metavar="N",
        help="tokens per sequence (default: 2048)",
    )
    step.add_argument(
        "--batch",
        type=whole_number(1),
        default=1,
        metavar="N",
        help="sequences per step (default: 1)",
    )
    step.add_argument(
        "--precision",
        choices=["float32", "bfloat16"],
        default="float32",
        help="number format of the step (default: float32)",
    )
    step.add_argument(
        "--gradient-checkpointing",
        action="store_true",
        help="recompute activations in the backward pass, which saves memory",
    )


ARGUMENTS = (add_json, _add_step)


def run(options: argparse.Namespace) -> int:
    """Print a row for each scale; returns the exit code."""
    from fope_lab.cli.render.scales_table import Step, print_scales, scale_rows

    step = Step(
        batch=options.batch,
        length=options.length,
        precision=options.precision,
        gradient_checkpointing=options.gradient_checkpointing,
    )
    rows = scale_rows(step)
    if options.json:
        print_json({"scales": rows})
    else:
        print_scales(rows, step, make_console())
    return OK
