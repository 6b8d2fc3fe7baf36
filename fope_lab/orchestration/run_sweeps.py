"""Runs sweeps: shows the progress, keeps MLflow up to date, and writes the reports."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fope_lab.orchestration.sweep_report import keep_report, report_of_plan
from fope_lab.planning.devices import device_named, this_machine
from fope_lab.planning.forecast import forecast_seconds
from fope_lab.planning.memory_fit import too_large, too_large_error
from fope_lab.report.files import REPORT_FILES
from fope_lab.report.numbers import report_numbers
from fope_lab.report.render.terminal import print_report
from fope_lab.store import StageState, Status, Store, StoreError
from fope_lab.sweep import Plan, Sweep, plan
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.plan import ACTIONS
from fope_lab.tracking import Tracker, TrackingError, TrackingThread

if TYPE_CHECKING:
    from rich.console import Console

    from fope_lab.orchestration.controller import Outcome

TRACKING_SECONDS = 30.0
"""How long the end of a run waits at most for MLflow to be brought up to date."""


def run_sweeps(
    sweeps: Sequence[Sweep],
    *,
    store: str,
    tracking_uri: str | None,
    address: str,
    console: Console,
    device: str | None = None,
) -> Mapping[str, StageState]:
    """Run every stage that the store lacks and write the reports; returns the failures by key.

    `device` names the GPUs of the cluster; if it is given, stages are checked against their memory.
    Raises KeyboardInterrupt if the run was interrupted, SweepError for stages that can't fit their
    device, StoreError, TrackingError, and ClusterError or ResourcesError for what is not there.
    """
    place = Store.create(store)
    plans = [plan(sweep, place) for sweep in sweeps]
    require_unblocked(plans)
    _require_fit(plans, device, address)
    tracker = Tracker(place.root, tracking_uri)
    stages = list({stage.key: stage for planned in plans for stage in planned.stages}.values())
    actions = {key: planned.action(key) for planned in plans for key in planned.states}
    counts = [f"{n} {word}" for word in ACTIONS if (n := list(actions.values()).count(word))]
    names = ", ".join(sweep.name for sweep in sweeps)
    _line(console, f"{names}: {len(stages)} stages: {', '.join(counts)}; store {place.root}")
    failed: Mapping[str, StageState] = {}
    if any(word != "cached" for word in actions.values()):
        seconds = forecast_seconds(stages, place, device)
        outcome = _run_stages(stages, plans, place, seconds, tracker, address, console)
        if outcome.interrupted:
            console.print("Interrupted. Run the same command again to continue.")
            raise KeyboardInterrupt
        failed = outcome.not_done
    try:
        for sweep in sweeps:
            _finish(plan(sweep, place), place, tracker, console)
    finally:  # whatever is wrong with a report, it must not hide why stages failed
        _print_failures(stages, failed, place, console)
    return failed


def require_unblocked(plans: Sequence[Plan]) -> None:
    """Raises StoreError if data that a stage needs must be fetched first."""
    states = [state for planned in plans for state in planned.states.values()]
    if reasons := dict.fromkeys(s.reason for s in states if s.status is Status.BLOCKED):
        raise StoreError("\n".join(reasons))


def _require_fit(plans: Sequence[Plan], device: str | None, address: str) -> None:
    """Raises SweepError if a stage needs more memory than there is: a stage with GPUs on `device`,
    a stage without GPUs on this machine, if the run is local."""
    from fope_lab.orchestration.environment import LOCAL

    gpu = device_named(device) if device else None
    cpu = this_machine() if address == LOCAL else None
    reasons: dict[str, str] = {}
    for planned in plans:
        reasons |= too_large(planned.stages, planned.states, gpu, cpu)
    if reasons:
        raise too_large_error(plans, reasons)


def _run_stages(
    stages: Sequence[Stage],
    plans: Sequence[Plan],
    store: Store,
    seconds: Mapping[str, float],
    tracker: Tracker,
    address: str,
    console: Console,
) -> Outcome:
    """Run what the store lacks while showing the progress and keeping MLflow up to date."""
    from fope_lab.orchestration.environment import prepare_environment

    prepare_environment(address)
    from fope_lab.orchestration.controller import run_stages
    from fope_lab.orchestration.progress_view import live_view

    @contextlib.contextmanager
    def watch(status: Callable[[], Mapping[str, StageState]]) -> Iterator[None]:
        tracking = TrackingThread(tracker, plans)
        tracking.start()
        try:
            with live_view(stages, store, status, console):
                yield
        finally:
            # The next run, or `sync`, uploads what is not uploaded in time.
            tracking.flush(timeout=TRACKING_SECONDS)

    return run_stages(stages, store, seconds, address=address, watch=watch)


def _finish(planned: Plan, store: Store, tracker: Tracker, console: Console) -> None:
    """Write and print the report, and bring MLflow up to date or say why it is not."""
    problem = ""
    try:
        tracker.project(planned)
    except TrackingError as error:
        problem = str(error)
    report = report_of_plan(planned, store, tracker)
    path = keep_report(report, store)
    if not problem:
        try:
            files = [path.parent / name for name in REPORT_FILES]
            tracker.log_summary(planned, files, report_numbers(report))
        except TrackingError as error:
            problem = str(error)
    print_report(report, console)
    _line(console, f"report: {path}")
    served = tracker.uri.startswith("http")
    _line(
        console,
        f"MLflow: {tracker.uri}" + (f" (fope-lab ui --store {store.root})" if not served else ""),
    )
    if problem:
        _line(console, f"MLflow is not up to date: {problem}", style="yellow")
        _line(console, "Run `fope-lab sync` to finish it.", style="yellow")


def _print_failures(
    stages: Sequence[Stage], failed: Mapping[str, StageState], store: Store, console: Console
) -> None:
    for stage in stages:
        if stage.key in failed:
            state, folder = failed[stage.key], store.folder(stage.kind, stage.key)
            failure = folder.failure() if state.status is Status.FAILED else None
            reason = failure["error"] if failure else state.reason
            log = folder.paths.log
            place = f" (log: {log})" if log.exists() else ""
            _line(console, f"{state.status} {stage.label}: {reason}{place}", style="red")


def _line(console: Console, text: str, **style: Any) -> None:
    console.print(text, soft_wrap=True, highlight=False, markup=False, **style)
