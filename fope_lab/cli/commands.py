"""What each command does with its options; every one returns its exit code.

Imports are made where they are needed, so that a command starts without torch, ray or mlflow
unless it uses them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fope_lab.cli.exit_codes import DONE, FAILED, INTERRUPTED

if TYPE_CHECKING:
    from rich.console import Console

    from fope_lab.report import Report
    from fope_lab.sweep import Sweep


def _load(paths: Sequence[str]) -> list[Sweep]:
    """The sweeps of files and folders. Raises SweepError holding the problems of all of them."""
    from fope_lab.sweep import Problem, SweepError, load_sweep

    sweeps, problems = [], []
    found: dict[Path, Path] = {}  # a file that is named twice is one sweep
    for path in map(Path, paths):
        files = sorted(path.rglob("*.yaml")) if path.is_dir() else [path]
        if not files:
            problems.append(Problem((), "this folder holds no sweep file (*.yaml)", file=path))
        for file in files:
            found.setdefault(file.resolve(), file)
    for file in found.values():
        try:
            sweeps.append(load_sweep(file))
        except SweepError as error:
            problems += error.problems
    by_name: dict[str, Path] = {}
    for sweep in sweeps:
        other = by_name.setdefault(sweep.name, sweep.path)
        if other != sweep.path:
            message = f"{sweep.name!r} is the name of {other} too"
            problems.append(Problem(("name",), message, file=sweep.path))
    if problems:
        raise SweepError(problems)
    return sweeps


def _load_one(path: str) -> Sweep:
    """The sweep of a file. Raises SweepError, also for a folder of several."""
    from fope_lab.sweep import Problem, SweepError

    sweeps = _load([path])
    if len(sweeps) > 1:
        files = ", ".join(sweep.path.name for sweep in sweeps)
        message = f"needs one sweep file, and this folder holds {len(sweeps)}: {files}"
        raise SweepError(Problem((), message, file=Path(path)))
    return sweeps[0]


def validate(options: argparse.Namespace) -> int:
    for sweep in _load(options.files):
        print(f"{sweep.path}: {sweep.name}, {len(sweep.stages)} stages")
    return DONE


def plan(options: argparse.Namespace) -> int:
    from fope_lab.planning.estimate import estimate_plans
    from fope_lab.store import Store
    from fope_lab.sweep import plan as plan_sweep

    store = Store.open(options.store)
    planned = estimate_plans(
        [plan_sweep(sweep, store) for sweep in _load(options.files)],
        store,
        device=options.device,
        price=options.price,
        gpus=options.gpus,
        cpus=options.cpus,
    )
    if options.json:
        print(json.dumps(planned.as_json(), indent=1, ensure_ascii=False))
    else:
        from fope_lab.planning.plan_table import print_plan

        print_plan(planned, _console(), every=options.all)
    planned.require_fit()
    return DONE


def run(options: argparse.Namespace) -> int:
    from fope_lab.cli.run import run_sweeps

    return run_sweeps(
        _load(options.files),
        store=options.store,
        tracking_uri=options.tracking_uri,
        address=options.address,
        console=_console(),
        device=options.device,
    )


def evaluate(options: argparse.Namespace) -> int:
    from fope_lab.cli.evaluate import evaluation_content

    content = evaluation_content(options.checkpoints, options.tasks, options.lengths, options.gpus)
    code, sweep = _run_made("evaluate", content, options, quiet=options.json)
    if options.json and code != INTERRUPTED:
        print(_current_report(sweep, options).json())
    return code


def analyze(options: argparse.Namespace) -> int:
    from fope_lab.cli.analyze import analysis_content, print_analyses, print_figures
    from fope_lab.store import Store

    if options.name is None:
        print_analyses(_console())
        return DONE
    content = analysis_content(options.name, options.checkpoints, options.corpus, options.gpus)
    code, sweep = _run_made("analyze", content, options)
    print_figures(sweep, Store.open(options.store), _console())
    return code


def _run_made(
    command: str, content: Mapping[str, Any], options: argparse.Namespace, quiet: bool = False
) -> tuple[int, Sweep]:
    """Run the sweep that a command has made; its YAML is kept in the store."""
    from fope_lab.cli.run import require_unblocked, run_sweeps
    from fope_lab.store import Store
    from fope_lab.sweep import plan as plan_sweep
    from fope_lab.sweep.adhoc_sweep import keep_sweep, make_sweep

    sweep, text = make_sweep(command, options.name_of_sweep, content)
    require_unblocked([plan_sweep(sweep, Store.open(options.store))])
    console = _console(stderr=quiet)
    path = keep_sweep(sweep, text, Store.create(options.store).root)
    console.print(f"as a sweep: {path}", highlight=False, soft_wrap=True, markup=False)
    code = run_sweeps(
        [sweep],
        store=options.store,
        tracking_uri=options.tracking_uri,
        address=options.address,
        console=console,
    )
    return code, sweep


def status(options: argparse.Namespace) -> int:
    from fope_lab.orchestration.phases import Phase
    from fope_lab.orchestration.progress_view import observed_status, status_table
    from fope_lab.store import Store

    sweep = _load_one(options.file)
    store = Store.open(options.store)
    status = observed_status(sweep.stages, store)
    _console().print(status_table(sweep.stages, status, store))
    return FAILED if any(one.phase is Phase.FAILED for one in status.values()) else DONE


def report(options: argparse.Namespace) -> int:
    from fope_lab.cli.report import write_report
    from fope_lab.store import Store, StoreError

    sweep = _load_one(options.file)
    store = Store.open(options.store)
    if not store.root.exists():
        raise StoreError(f"there is no store {options.store}: nothing has run there")
    report = _current_report(sweep, options)
    if options.json:
        print(report.json())
        return DONE
    if options.markdown:
        print(report.markdown(), end="")
        return DONE
    console = _console()
    report.print(console)
    try:
        text = f"report: {write_report(report, store)}"
    except OSError as error:
        text = f"report: not written, the store is read-only ({error})"
    console.print(text, soft_wrap=True, highlight=False, markup=False)
    return DONE


def _current_report(sweep: Sweep, options: argparse.Namespace) -> Report:
    """The report of what the store holds of a sweep by now."""
    from fope_lab.cli.report import build_report_of
    from fope_lab.store import Store
    from fope_lab.sweep import plan as plan_sweep
    from fope_lab.tracking import Tracker

    store = Store.open(options.store)
    tracker = Tracker(store.root, options.tracking_uri)
    return build_report_of(plan_sweep(sweep, store), store, tracker)


def sync(options: argparse.Namespace) -> int:
    from fope_lab.tracking import Tracker

    names = Tracker(options.store, options.tracking_uri).sync()
    print(f"up to date: {', '.join(names) or 'nothing has run yet'}")
    return DONE


def ui(options: argparse.Namespace) -> int:
    from fope_lab.store import Store
    from fope_lab.tracking import serve

    return int(serve(Store.create(options.store).root, options.host, options.port))


def submit(options: argparse.Namespace) -> int:
    from fope_lab.orchestration.submit import submit as submit_sweep

    sweep = _load_one(options.file)
    return submit_sweep(
        sweep,
        options.address,
        store=options.store,
        tracking_uri=options.tracking_uri,
        wait=not options.no_wait,
    )


def fetch(options: argparse.Namespace) -> int:
    from fope_lab.cli.fetch import run_fetch

    run_fetch(options)
    return DONE


def schema(options: argparse.Namespace) -> int:
    from fope_lab.sweep.schema import sweep_json_schema

    print(json.dumps(sweep_json_schema(), indent=1, ensure_ascii=False))
    return DONE


def export(options: argparse.Namespace) -> int:
    from fope_lab.cli.export import run_export

    run_export(options, _console())
    return DONE


def scales(options: argparse.Namespace) -> int:
    from fope_lab.cli.scales import run_scales

    run_scales(options, _console())
    return DONE


def embeddings(options: argparse.Namespace) -> int:
    from fope_lab.cli.embeddings import run_embeddings

    run_embeddings(options, _console())
    return DONE


def _console(stderr: bool = False) -> Console:
    from rich.console import Console

    # Where there is no terminal nothing has a width to fit: keep lines whole.
    width = None if (sys.stderr if stderr else sys.stdout).isatty() else 200
    return Console(width=width, soft_wrap=False, stderr=stderr)
