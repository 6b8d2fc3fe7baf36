"""`fope-lab status`, `logs`, `sync`, `ui` and `report`: see what stages do, did and measured."""

from __future__ import annotations

import argparse
from pathlib import Path

from fope_lab.cli import shared_options as shared
from fope_lab.cli.shared_options import argument, command, flag
from fope_lab.config.console import WHOLE_ROWS, make_console, plain, print_json, say
from fope_lab.config.environment import FAILED, OK
from fope_lab.config.problems import Problem, SweepError


@command(
    "status",
    "show the progress of sweeps, and whether something is running them",
    shared.add_files,
    shared.add_store,
    shared.add_json,
    flag("--watch", "keep showing the progress until nothing runs the sweeps"),
    flag("--all", "show every stage on its own line"),
    epilog=shared.TABLE_WIDTH,
)
def status(options: argparse.Namespace) -> int:
    from fope_lab.cli.render.status import print_states, status_json
    from fope_lab.orchestration.drivers import drivers_of_recorded
    from fope_lab.orchestration.live_view import watch
    from fope_lab.orchestration.progress import observe_states, print_problems
    from fope_lab.store.root import Store, StoreSnapshot
    from fope_lab.store.state import Status
    from fope_lab.sweep.load import load_sweeps
    from fope_lab.sweep.plan import notes

    if options.json and options.watch:
        raise SweepError(Problem(("--json",), "can't be used together with --watch"))
    sweeps = load_sweeps(options.files, Store.open(options.store))
    store = Store.existing(options.store)
    console = make_console(stderr=options.json, elsewhere=WHOLE_ROWS)
    if options.watch:
        watch(sweeps, store, console)
    stages = list({stage.key: stage for sweep in sweeps for stage in sweep.stages}.values())
    store = StoreSnapshot.of(store)
    states = observe_states(sweeps, store)
    contents = []
    for sweep in sweeps:
        drivers = drivers_of_recorded(store, sweep.name)
        own = {stage.key: states[stage.key] for stage in sweep.stages}
        if options.json:
            contents.append(status_json(sweep, own, store, drivers))
            continue
        runs = ", ".join(str(driver) for driver in drivers)
        line = f"{sweep.name}: {f'run by {runs}' if runs else 'nothing is running it'}"
        say(console, f"{line}; store {store}", style="bold")
        print_states(sweep.stages, own, store, console, every=options.all)
    if options.json:
        print_json({"sweeps": contents})
    else:
        print_problems(stages, states, store, console)
    say(console, *notes(sweeps, store), style="yellow")
    failed = any(state.status is Status.FAILED for state in states.values())
    return FAILED if failed else OK


@command(
    "logs",
    "print the log of a stage's latest attempt",
    shared.add_stage,
    shared.add_store,
    flag("--follow", "keep printing new lines until no process works on the stage"),
    flag("--all", "print the logs of all attempts, oldest first"),
)
def logs(options: argparse.Namespace) -> int:
    from fope_lab.cli.housekeeping.known_stages import find_known_stage
    from fope_lab.cli.housekeeping.stage_log import StageLog
    from fope_lab.store.root import Store

    stage = find_known_stage(Store.existing(options.store), options.stage)
    log = StageLog(stage.folder, stage.title, every_attempt=options.all)
    print(plain(log.summary()))
    if options.follow:
        for text in log.follow():
            print(plain(text), end="", flush=True)
        print(plain(log.summary()))
    else:
        print(plain(log.read()), end="")
    return OK


@command(
    "sync", "bring MLflow up to date with the store", shared.add_store, shared.add_tracking_uri
)
def sync(options: argparse.Namespace) -> int:
    from fope_lab.store.root import Store
    from fope_lab.tracking.tracker import Tracker, sync

    tracker = Tracker(Store.existing(options.store).root, options.tracking_uri)
    names = sync(tracker)
    print(f"up to date: {', '.join(names) or 'nothing has run yet'}")
    if missing := [name for name in tracker.sweeps() if not tracker.has_report(name)]:
        print(f"without a report, which `fope-lab run` makes at its end: {', '.join(missing)}")
    return OK


@command(
    "ui",
    "browse a store's runs in MLflow",
    shared.add_store,
    argument("--host", "address to listen on (default: 127.0.0.1)", default="127.0.0.1"),
    shared.count("--port", "port to listen on (default: 5000)", last=65535, default=5000),
)
def ui(options: argparse.Namespace) -> int:
    from fope_lab.store.root import Store
    from fope_lab.tracking.ui import serve

    return serve(Store.existing(options.store).root, options.host, options.port)


@command(
    "report",
    "show a sweep's results so far",
    shared.add_file,
    shared.add_store,
    shared.add_tracking_uri,
    shared.exclusive(
        shared.add_json,
        flag("--markdown", "print the whole report as Markdown"),
        flag("--latex", "print every table and the claims as LaTeX, with the rules of booktabs"),
        argument(
            "--figures",
            "write every figure into a folder, as SVG and as PDF, and print the files' names",
            "DIR",
        ),
    ),
)
def report(options: argparse.Namespace) -> int:
    """Print the report; in its default form, write its files into the store too."""
    from fope_lab.orchestration.run_sweeps import report_of_sweep
    from fope_lab.report.files import write_figures
    from fope_lab.report.render.documents import render_latex, render_markdown
    from fope_lab.report.render.json import render_json
    from fope_lab.store.root import Store
    from fope_lab.sweep.load import load_single_sweep
    from fope_lab.sweep.plan import notes

    sweep = load_single_sweep(options.file, Store.open(options.store))
    store = Store.existing(options.store)
    found = report_of_sweep(sweep, store, options.tracking_uri)
    for_a_file = options.json or options.markdown or options.latex or options.figures is not None
    say(make_console(stderr=for_a_file), *notes([sweep], store), style="yellow")
    if options.json:
        print(render_json(found.report))
    elif options.markdown:
        print(plain(render_markdown(found.report)), end="")
    elif options.latex:
        print(plain(render_latex(found.report)), end="")
    elif options.figures is not None:
        print(*write_figures(found.report, Path(options.figures)), sep="\n")
    else:
        found.print(console := make_console())
        try:
            say(console, f"report: {found.save()}")
        except OSError as error:
            say(console, f"report: not written ({error})")
    return OK


COMMANDS = (status, logs, sync, ui, report)
