"""`fope-lab evaluate`, `analyze` and `export`: work on checkpoints without a sweep file."""

from __future__ import annotations

import argparse

from fope_lab.cli.adhoc_run import ADHOC_ARGUMENTS, run_adhoc_sweep
from fope_lab.cli.console import make_console
from fope_lab.cli.inputs import checkpoint_places
from fope_lab.cli.shared_options import (
    CHECKPOINT,
    Command,
    add_json,
    add_plugins,
    add_store,
    argument,
)
from fope_lab.config.environment import FAILED, OK


def _evaluate(options: argparse.Namespace) -> int:
    from fope_lab.orchestration.sweep_report import report_of_sweep
    from fope_lab.report.render.json import render_json
    from fope_lab.store import Store
    from fope_lab.sweep.adhoc import evaluation_content

    checkpoints = checkpoint_places(options.checkpoints, options.store)
    content = evaluation_content(
        checkpoints, options.tasks, options.lengths, options.gpus, options.embedding
    )
    console = make_console(stderr=options.json)
    sweep, failed_or_blocked = run_adhoc_sweep("evaluate", content, options, console)
    if options.json:
        store = Store.open(options.store)
        print(render_json(report_of_sweep(sweep, store, options.tracking_uri)))
    return FAILED if failed_or_blocked else OK


def _analyze(options: argparse.Namespace) -> int:
    from fope_lab.cli.render.analyses import print_analyses, print_figures
    from fope_lab.store import Store
    from fope_lab.sweep.adhoc import analysis_content

    console = make_console()
    if options.name is None:
        print_analyses(console)
        return OK
    checkpoints = checkpoint_places(options.checkpoints, options.store)
    content = analysis_content(options.name, checkpoints, options.corpus, options.gpus)
    sweep, failed_or_blocked = run_adhoc_sweep("analyze", content, options, console)
    print_figures(sweep.stages, Store.open(options.store), console)
    return FAILED if failed_or_blocked else OK


def _export(options: argparse.Namespace) -> int:
    from fope_lab.housekeeping.model_origin import origin_of
    from fope_lab.model.export.folder import MODEL_FILE, export
    from fope_lab.store import Store

    [checkpoint] = checkpoint_places([options.checkpoint], options.store)
    origin = origin_of(checkpoint, Store.open(options.store))
    folder = export(checkpoint, options.directory, to=options.to, origin=origin)
    trust = ", trust_remote_code=True" if (folder / MODEL_FILE).exists() else ""
    lines = [
        f"{folder}: load it with",
        f"  AutoModelForCausalLM.from_pretrained({str(folder)!r}{trust})",
        f"  AutoTokenizer.from_pretrained({str(folder)!r}{trust})",
    ]
    for line in lines:
        make_console().print(line, soft_wrap=True, highlight=False, markup=False)
    return OK


COMMANDS = (
    Command(
        "evaluate",
        "evaluate checkpoints without a sweep file",
        (
            argument("checkpoints", nargs="+", metavar="CHECKPOINT", help=CHECKPOINT),
            argument(
                "--tasks",
                nargs="+",
                required=True,
                metavar="TASK",
                help="a kind of evaluation, such as passkey, the name of a task, such as hellaswag,"
                " or 'KIND: {FIELD: VALUE}' as in a sweep; a wrong name lists all",
            ),
            argument(
                "--lengths",
                nargs="+",
                type=int,
                metavar="N",
                help="context lengths of the evaluations that have lengths",
            ),
            argument(
                "--embedding",
                nargs="+",
                default=[],
                metavar="EMBEDDING",
                help="evaluate with this embedding in place of the checkpoint's own, without"
                " training; it is written as in a sweep, such as '{type: yarn, factor: 4}';"
                " several are compared, and null is the checkpoint's own",
            ),
            add_json,
            *ADHOC_ARGUMENTS,
        ),
        _evaluate,
    ),
    Command(
        "analyze",
        "run an analysis from a paper: arrays and a figure",
        (
            argument(
                "name",
                nargs="?",
                metavar="NAME",
                help="an analysis, or '{type: NAME, OPTION: VALUE}'; without it, all analyses are"
                " listed",
            ),
            argument("checkpoints", nargs="*", metavar="CHECKPOINT", help=CHECKPOINT),
            argument(
                "--corpus",
                metavar="CORPUS",
                help="text that the analysis reads, as in a sweep file",
            ),
            *ADHOC_ARGUMENTS,
        ),
        _analyze,
    ),
    Command(
        "export",
        "write a model as a folder for Hugging Face's transformers",
        (
            argument("checkpoint", metavar="CHECKPOINT", help=CHECKPOINT),
            argument("directory", metavar="DIR", help="a new or empty folder"),
            argument(
                "--to",
                choices=["fope-lab", "llama", "gpt2"],
                default="fope-lab",
                help="fope-lab: any model, together with its code (default); llama, gpt2:"
                " transformers' own Llama or GPT-2, for models that its code can express",
            ),
            add_plugins,
            add_store,
        ),
        _export,
    ),
)
