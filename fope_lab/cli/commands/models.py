"""`fope-lab evaluate`, `analyze` and `export`: work on checkpoints without a sweep file."""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fope_lab.cli import shared_options as shared
from fope_lab.cli.shared_options import argument, command
from fope_lab.config.console import make_console, say
from fope_lab.config.environment import FAILED, OK
from fope_lab.config.problems import Problem, SweepError

if TYPE_CHECKING:
    from rich.console import Console

    from fope_lab.sweep import Sweep

ADHOC_ARGUMENTS = (
    shared.add_store,
    shared.add_tracking_uri,
    shared.add_address,
    shared.add_plugins,
    argument("--gpus", "GPUs of each stage (default: 0)", "N", type=float, default=0),
    argument(
        "--name",
        "name of the sweep that the command makes, and of its MLflow experiment",
        dest="sweep_name",
    ),
)
"""The arguments of an ad-hoc sweep: where it runs, on how many GPUs, and its name."""


def run_adhoc_sweep(
    command: str, content: Mapping[str, Any], options: argparse.Namespace, console: Console
) -> tuple[Sweep, int]:
    """Save and run the sweep with this content; returns it and the exit code.

    `options` holds those of ADHOC_ARGUMENTS. Raises SweepError for wrong content, and what
    run_sweeps raises.
    """
    from fope_lab.orchestration.run_sweeps import require_unblocked, run_sweeps
    from fope_lab.store.root import Store
    from fope_lab.sweep import plan
    from fope_lab.sweep.adhoc import adhoc_sweep, save_sweep
    from fope_lab.tracking.tracker import Tracker
    from fope_lab.tracking.uploads import Uploads

    if names := options.plugins:
        places = [os.path.abspath(name) if os.path.exists(name) else name for name in names]
        content = {"plugins": places, **content}
    store = Store.open(options.store)
    Tracker(store.root, options.tracking_uri)  # refuses a wrong URI before anything is saved
    sweep, text = adhoc_sweep(command, options.sweep_name, content, store)
    require_unblocked([plan(sweep, store)])
    path = save_sweep(sweep, text, Store.create(options.store).root)
    say(console, f"saved as a sweep: {path}")
    with Uploads() as uploads:
        failed_or_blocked = run_sweeps(
            [sweep],
            uploads,
            store=options.store,
            tracking_uri=options.tracking_uri,
            address=options.address,
            console=console,
        )
    return sweep, FAILED if failed_or_blocked else OK


def checkpoint_places(words: Iterable[str], store: str) -> list[str]:
    """Each word as a path or as a model of the hub.

    A word that names nothing in the current folder is a stage of the folder `store`: its name in
    the sweep file, its label or the beginning of its key, as plan and status show them. Raises
    SweepError for a word that means nothing, or several stages.
    """
    from fope_lab.cli.housekeeping.known_stages import find_known_stage
    from fope_lab.model.hub import PREFIX
    from fope_lab.store.root import Store

    place = Store.open(store)

    def found(word: str) -> str:
        if word.startswith(PREFIX) or Path(word).exists():
            return word
        try:
            if place.root.is_dir():
                return str(find_known_stage(place, word).folder.path)
            faults = [f"no store at {place}"]
        except SweepError as error:
            faults = [f"in the store {place}: {problem.message}" for problem in error.problems]
        if "/" in word:
            return word  # the reader says that no such folder exists
        told = f"there is no folder {word} here, and "
        raise SweepError([Problem(("CHECKPOINT",), f"{told}{fault}") for fault in faults])

    return [found(word) for word in words]


@command(
    "evaluate",
    "evaluate checkpoints without a sweep file",
    argument("checkpoints", shared.CHECKPOINT, "CHECKPOINT", nargs="+"),
    argument(
        "--tasks",
        "a kind of evaluation, such as passkey, the name of a task, such as hellaswag, or"
        " 'KIND: {FIELD: VALUE}' as in a sweep; a wrong name lists all",
        "TASK",
        nargs="+",
        required=True,
    ),
    argument(
        "--lengths",
        "context lengths of the evaluations that have lengths",
        "N",
        nargs="+",
        type=int,
    ),
    shared.words(
        "--embedding",
        "evaluate with this embedding in place of the checkpoint's own, without training; it is"
        " written as in a sweep, such as '{type: yarn, factor: 4}'; several are compared, and null"
        " is the checkpoint's own",
        "EMBEDDING",
    ),
    shared.add_json,
    *ADHOC_ARGUMENTS,
)
def evaluate(options: argparse.Namespace) -> int:
    from fope_lab.orchestration.run_sweeps import report_of_sweep
    from fope_lab.report.render.json import render_json
    from fope_lab.store.root import Store
    from fope_lab.sweep.adhoc import evaluation_content

    checkpoints = checkpoint_places(options.checkpoints, options.store)
    content = evaluation_content(
        checkpoints, options.tasks, options.lengths, options.gpus, options.embedding
    )
    console = make_console(stderr=options.json)
    sweep, code = run_adhoc_sweep("evaluate", content, options, console)
    if options.json:
        store = Store.open(options.store)
        print(render_json(report_of_sweep(sweep, store, options.tracking_uri).report))
    return code


NEEDS = {"nothing": "–", "model": "CHECKPOINT", "text": "CHECKPOINT --corpus"}
RESULTS = (".npz", ".svg")
"""The suffixes of an analysis's arrays and figure."""


def _print_analyses(console: Console) -> None:
    from rich import box
    from rich.table import Table

    from fope_lab.analysis.base import ANALYSIS_TYPES
    from fope_lab.stages.labels import label

    table = Table(box=box.SIMPLE_HEAD)
    for title in ("analysis", "needs", "options", "source", "what the paper shows with it"):
        table.add_column(title, overflow="fold")
    for name, kind in ANALYSIS_TYPES.all().items():
        fields = dataclasses.fields(cast("Any", kind))
        options = (f"{field.name}: {label(field.default)}" for field in fields)
        table.add_row(name, NEEDS[kind.needs], "\n".join(options), kind.source, kind.says)
    console.print(table)


@command(
    "analyze",
    "run an analysis from a paper: arrays and a figure",
    argument(
        "name",
        "an analysis, or '{type: NAME, OPTION: VALUE}'; without it, all analyses are listed",
        "NAME",
        nargs="?",
    ),
    argument("checkpoints", shared.CHECKPOINT, "CHECKPOINT", nargs="*"),
    argument("--corpus", "text that the analysis reads, as in a sweep file", "CORPUS"),
    *ADHOC_ARGUMENTS,
)
def analyze(options: argparse.Namespace) -> int:
    from fope_lab.stages.metric import ResultRecord
    from fope_lab.store.root import Store
    from fope_lab.sweep.adhoc import analysis_content

    console = make_console()
    if options.name is None:
        _print_analyses(console)
        return OK
    checkpoints = checkpoint_places(options.checkpoints, options.store)
    content = analysis_content(options.name, checkpoints, options.corpus, options.gpus)
    sweep, code = run_adhoc_sweep("analyze", content, options, console)
    for stage in sweep.stages:
        folder = Store.open(options.store).folder(stage.kind, stage.key)
        checkpoint, result = folder.checkpoint(), folder.result()
        if stage.kind != "analysis" or checkpoint is None or result is None:
            continue
        paths = sorted(path for path in checkpoint.path.iterdir() if path.suffix in RESULTS)
        numbers = ResultRecord.parse(result).numbers
        say(console, stage.label, *(f"  {name} {value:.6g}" for name, value in numbers.items()))
        say(console, *(f"  {path}" for path in paths))
    return code


@command(
    "export",
    "write a model as a folder for Hugging Face's transformers",
    argument("checkpoint", shared.CHECKPOINT, "CHECKPOINT"),
    argument("directory", "a new or empty folder", "DIR"),
    argument(
        "--to",
        "fope-lab: any model, together with its code (default); a family of transformers, such as"
        " llama, gemma3_text or gpt2: its own class, for models that this can express",
        metavar="FAMILY",
        default="fope-lab",
    ),
    shared.add_plugins,
    shared.add_store,
)
def export(options: argparse.Namespace) -> int:
    from fope_lab.cli.housekeeping.model_origin import origin_of
    from fope_lab.model.export.folder import export
    from fope_lab.model.export.sources import MODEL_FILE
    from fope_lab.model.hub import hub_name
    from fope_lab.store.folder import find_checkpoint
    from fope_lab.store.root import Store

    [checkpoint] = checkpoint_places([options.checkpoint], options.store)
    origin = origin_of(checkpoint, Store.open(options.store))
    source = checkpoint if hub_name(checkpoint) else find_checkpoint(checkpoint, intact=True)
    folder = export(source, options.directory, to=options.to, origin=origin)
    trust = ", trust_remote_code=True" if (folder / MODEL_FILE).exists() else ""
    loads = (
        f"  {name}.from_pretrained({str(folder)!r}{trust})"
        for name in ("AutoModelForCausalLM", "AutoTokenizer")
    )
    say(make_console(), f"{folder}: load it with", *loads)
    return OK


COMMANDS = (evaluate, analyze, export)
