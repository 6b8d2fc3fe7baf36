"""Runs sweeps: shows the progress, keeps MLflow up to date, and writes the reports.

A report links to the runs in MLflow."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING

from fope_lab.config.console import say
from fope_lab.config.devices import device_named, this_machine
from fope_lab.config.problems import counted
from fope_lab.orchestration.cluster_address import LOCAL, prepare_environment, require_cluster
from fope_lab.orchestration.live_view import live_view
from fope_lab.orchestration.progress import RunProgress, print_problems
from fope_lab.planning.forecast import forecast_seconds, without_gaps
from fope_lab.planning.memory_fit import too_large, too_large_error
from fope_lab.planning.needed_stages import NeededStates, plan_sweeps
from fope_lab.report.build import (
    Report,
    RunLinks,
    build_report,
    provenance,
    report_inputs,
    with_links,
)
from fope_lab.report.files import (
    REPORT_FILES,
    WrittenReport,
    named_panels,
    unchanged_report,
    write_report,
)
from fope_lab.report.render.json import report_numbers
from fope_lab.report.render.terminal import MOST_MISSING, print_report, report_text
from fope_lab.report.results.frame import results_frame
from fope_lab.store.attempts import LeaseHeldError, driver_name, is_gone
from fope_lab.store.records import StoreError
from fope_lab.store.root import Store, StoreSnapshot
from fope_lab.store.state import CACHED, StageState, Status
from fope_lab.sweep.graph import Stage, Sweep
from fope_lab.sweep.plan import ACTIONS, Plan, keep_file, notes, stages_of
from fope_lab.sweep.stage_filter import StageFilter, every_stage, stages_to_redo
from fope_lab.tracking.errors import TrackingError
from fope_lab.tracking.tracker import Tracker
from fope_lab.tracking.uploads import Uploads
from fope_lab.tracking.uris import is_server, run_link

if TYPE_CHECKING:
    from rich.console import Console

    from fope_lab.orchestration.controller import ReadStates
    from fope_lab.orchestration.nodes import ReadRoom
    from fope_lab.orchestration.searcher import ReadWaits

LEFT_OUT = "left out"
"""What a run does with an unfinished stage that is not selected."""
NOTHING = ("cached", "if needed", "not needed")
"""What a plan says of stages for which nothing has to be started."""
MOST_CAUSES = 10
"""How many causes of each status the end of a run prints."""
INTERRUPTED_SECONDS = 8.0
"""How long a run that was interrupted waits at most for MLflow to be brought up to date."""


def run_sweeps(
    sweeps: Sequence[Sweep],
    uploads: Uploads,
    *,
    store: str,
    tracking_uri: str | None,
    address: str,
    console: Console,
    device: str | None = None,
    redo: Sequence[str] = (),
    redo_stale: bool = False,
    select: StageFilter = every_stage,
) -> Mapping[str, StageState]:
    """Run every stage that the store lacks and write the reports; returns the states of the stages
    that failed or were blocked, by key.

    `redo` names stages to re-run with their descendants, and `redo_stale` adds those whose code has
    changed since; their output is kept. `select` chooses what is run; reports and MLflow are always
    of whole sweeps. `device` names the GPUs of the cluster, to check the stages' memory. `uploads`
    has been entered, so that its process has begun to import MLflow.
    Raises KeyboardInterrupt if the run was interrupted, SweepError for stages that can't fit, and
    another UserError for anything that is missing.
    """
    place = Store.open(store)
    tracker = Tracker(place.root, tracking_uri)
    names = [sweep.name for sweep in sweeps]
    read = StoreSnapshot.of(place)
    # The plans hold all stages, and say which of those that a rule for seeds adds are needed.
    selected = select(plans := plan_sweeps(sweeps, read))
    if not stages_of(selected):
        actions = _actions(plans, [])
        done = f"{actions['cached']} of {actions.total()} stages are done"
        say(console, f"{', '.join(names)}: no stage has failed; {done}; store {place}")
        return {}
    require_unblocked(selected)
    again = stages_to_redo(plans, redo, stale=redo_stale)
    _require_memory(selected, again, device, address)
    place = Store.create(store)  # only now, when nothing that was asked for is wrong
    if again:
        _prepare_rerun(again, place, console)
        selected = select(plans := plan_sweeps(sweeps, place))
    stages = stages_of(selected)
    actions = _actions(plans, stages)
    say(console, *notes(sweeps, place), style="yellow")
    for planned in plans:
        keep_corpora(planned, place)
        with contextlib.suppress(TrackingError):  # a full disk: the end of the run says so
            tracker.record(planned)
    counts = ", ".join(f"{n} {word}" for word, n in actions.items() if n)
    text = f"{', '.join(names)}: {counted(actions.total())}: {counts}; store {place}"
    say(console, text)
    states: Mapping[str, StageState] = {}
    if any(planned.action(key) not in NOTHING for planned in selected for key in planned.states):
        forecasts = forecast_seconds(stages, place, device)
        try:
            states = _run_stages(
                stages,
                plans,
                place,
                forecasts,
                tracker=tracker,
                uploads=uploads,
                address=address,
                console=console,
            )
        except KeyboardInterrupt:
            console.print("Interrupted. Run the same command again to continue.")
            raise
        read = StoreSnapshot.of(place)
        plans = plan_sweeps(sweeps, read)
    else:
        uploads.start(tracker, names)
    try:
        for planned in plans:
            keep_corpora(planned, place)
        _finish(plans, read, tracker, uploads, console)
        if left := _actions(plans, stages)[LEFT_OUT]:
            text = f"{counted(left)} not selected; run without --only or --retry-failed to finish"
            say(console, text, style="yellow")
    finally:  # whatever is wrong with a report, it must not hide why stages failed
        _print_end(stages, states, place, console)
    stopped = (Status.FAILED, Status.BLOCKED)
    return {key: state for key, state in states.items() if state.status in stopped}


def _actions(plans: Sequence[Plan], selected: Sequence[Stage]) -> Counter[str]:
    """How many stages of the plans a run takes from the store, resumes, runs and leaves out."""
    keys = {stage.key for stage in selected}
    actions = {key: planned.action(key) for planned in plans for key in planned.states}
    counts = Counter(dict.fromkeys((*ACTIONS, LEFT_OUT), 0))
    counts.update(
        action if key in keys or action in NOTHING else LEFT_OUT for key, action in actions.items()
    )
    return counts


def _print_end(
    stages: Sequence[Stage], states: Mapping[str, StageState], store: Store, console: Console
) -> None:
    ended = [states[stage.key] for stage in stages if stage.key in states]
    for state in ended:
        if state.is_done and state.reason not in ("", CACHED.reason):
            say(console, f"re-run: {state.reason}", style="yellow")
    print_problems(stages, states, store, console, MOST_CAUSES)
    counts = Counter(state.status for state in ended)
    if failed := counts[Status.FAILED]:
        blocked = f", {counts[Status.BLOCKED]:,} blocked" if counts[Status.BLOCKED] else ""
        text = f"{counts[Status.DONE]:,} of {counted(len(stages))} done, {failed:,} failed{blocked}"
        advice = "`--retry-failed` runs those again and nothing else"
        say(console, f"{text}; {advice}", style="bold red")


def keep_corpora(planned: Plan, store: Store) -> None:
    """Record what the corpora of local files hold that finished stages of the plan have read."""
    done = (stage for stage in planned.sweep.stages if planned.states[stage.key].is_done)
    read = [corpus.canonical() for stage in done if (corpus := stage.spec.reads())]
    for local in planned.sweep.local_corpora:
        if local.corpus in read:
            store.keep_corpus(local.record)


def _prepare_rerun(stages: Sequence[Stage], store: Store, console: Console) -> None:
    """Make the stages count as not started. Raises StoreError if a driver is running one."""
    owner = driver_name()
    for stage in stages:
        folder = store.folder(stage.kind, stage.key)
        newest = folder.attempts.newest()
        dead = newest.token if newest is not None and is_gone(newest.owner) else None
        try:
            aside = folder.set_aside(owner, supersede=dead)
        except LeaseHeldError as error:
            raise StoreError(f"{stage.label} can't be re-run now: {error}") from error
        if aside is not None:
            say(console, f"re-running {stage.label}; its previous output is in {aside}")


def require_unblocked(plans: Sequence[Plan]) -> None:
    """Raises StoreError if data that a stage needs must be fetched first."""
    labels: dict[str, dict[str, None]] = {}
    for planned in plans:
        for stage in planned.sweep.stages:
            state = planned.states[stage.key]
            if state.status is Status.BLOCKED:
                labels.setdefault(state.reason, {})[stage.label] = None
    if labels:
        raise StoreError("\n".join(f"{', '.join(of)}: {reason}" for reason, of in labels.items()))


def _require_memory(
    plans: Sequence[Plan], again: Sequence[Stage], device: str | None, address: str
) -> None:
    """Raises SweepError if a stage that is not done, or is run `again`, needs more memory than
    there is: a stage with GPUs on `device`, one without on this machine, if the run is local."""
    repeated = {stage.key for stage in again}
    left = [
        stage
        for planned in plans
        for stage in planned.sweep.stages
        if stage.key in repeated or not planned.states[stage.key].is_done
    ]
    cpu = this_machine() if address == LOCAL else None
    if reasons := too_large(left, device_named(device) if device else None, cpu):
        raise too_large_error(plans, reasons)


def _run_stages(
    stages: Sequence[Stage],
    plans: Sequence[Plan],
    store: Store,
    forecasts: Mapping[str, float | None],
    *,
    tracker: Tracker,
    uploads: Uploads,
    address: str,
    console: Console,
) -> Mapping[str, StageState]:
    """Run what the store lacks, and bring MLflow up to date once there is room for each stage."""
    require_cluster(address)
    prepare_environment(address)
    from fope_lab.orchestration.controller import run_stages

    names = [planned.sweep.name for planned in plans]

    @contextlib.contextmanager
    def watch(
        read_states: ReadStates, read_room: ReadRoom, read_waits: ReadWaits
    ) -> Iterator[None]:
        progress = RunProgress(stages, store, forecasts, read_room, read_waits)
        uploads.start(tracker, names)
        try:
            with live_view(progress, read_states, console):
                yield
        except BaseException:  # the failures up to then are printed
            print_problems(stages, read_states(), store, console, MOST_CAUSES)
            uploads.flush(INTERRUPTED_SECONDS)  # the next run, or `sync`, uploads the rest
            raise
        uploads.flush()

    return run_stages(
        stages,
        store,
        without_gaps(forecasts),
        address=address,
        watch=watch,
        sweeps=names,
        say=lambda line: say(console, line, style="yellow"),
        needed=NeededStates([planned.sweep for planned in plans], store).of,
    )


def _finish(
    plans: Sequence[Plan], read: StoreSnapshot, tracker: Tracker, uploads: Uploads, console: Console
) -> None:
    """Write and print the reports; an MLflow that can't be used is left to `sync`."""
    unrecorded, store, is_new = None, read.live(), False
    reports = [ReportOfSweep(planned.sweep, read, tracker) for planned in plans]
    if not uploads.unreachable:
        uploads.flush()  # only now: it went on meanwhile. A report links to its runs
    for planned, found in zip(plans, reports, strict=True):
        where = ""
        try:
            written = found.save()
            where = str(written)
            if not written.unchanged or not tracker.has_report(planned.sweep.name):
                files = report_artifacts(found.report, written)
                tracker.log_report(planned, files, report_numbers(found.report))
                is_new = True
        except TrackingError as error:
            unrecorded = str(error)
        except OSError as error:
            where = where or f"not written ({error})"
        found.print(console, most_missing=0)
        say(console, f"report: {where}")
    if is_new and not uploads.unreachable:
        uploads.flush()
    problem = uploads.unreachable or uploads.last_error or unrecorded
    pages = "" if is_server(tracker.uri) else f" (fope-lab ui --store {quote(str(store))})"
    say(console, f"MLflow: {tracker.address}{pages}")
    if problem:
        again = f"Run `{tracker.sync_command}` to finish it."
        say(console, f"MLflow is not up to date: {problem}. {again}", style="yellow")


class ReportOfSweep:
    """The results so far of a sweep, with the links to MLflow that are recorded when it is first
    saved or printed. They are aggregated only if something has changed since the store's report was
    made, or if asked for."""

    def __init__(self, sweep: Sweep, store: Store, tracker: Tracker) -> None:
        self._sweep, self._snapshot, self._tracker = sweep, StoreSnapshot.of(store), tracker
        self._provenance = provenance(sweep, self._snapshot)
        self._inputs = report_inputs(sweep, self._snapshot, self._provenance)

    @functools.cached_property
    def _links(self) -> RunLinks:
        sweep, tracker = self._sweep, self._tracker
        runs = tracker.runs(sweep)
        ids = {key: run.run_id for key, run in runs.items()}
        experiment = next((run.experiment_id for run in runs.values()), "")
        addresses = {key: run_link(tracker.uri, experiment, run) for key, run in ids.items()}
        return RunLinks(ids, addresses, tracker.view_links(sweep.name))

    @functools.cached_property
    def _unchanged(self) -> WrittenReport | None:
        inputs = with_links(self._inputs, self._links)
        return unchanged_report(inputs, self._snapshot.report(self._sweep.name))

    @functools.cached_property
    def report(self) -> Report:
        """The report with all its numbers, built when it is first asked for."""
        forecasts = functools.cache(lambda: forecast_seconds(self._sweep.stages, self._snapshot))

        def seconds(stages: Sequence[Stage]) -> float | None:
            """The seconds of the stages in all, from what was measured; None if one is unknown."""
            times = [forecasts().get(stage.key) for stage in stages]
            known = [time for time in times if time is not None]
            return sum(known) if times and len(known) == len(times) else None

        return build_report(
            self._sweep,
            self._snapshot,
            provenance=self._provenance,
            links=self._links,
            seconds=seconds,
        )

    def save(self) -> WrittenReport:
        """Write the report into its folder in the store, and from which file it came."""
        store, name = self._snapshot.live(), self._sweep.name
        written = self._unchanged or write_report(self.report, store.report(name))
        keep_file(name, self._sweep.path, store)
        return written

    def print(self, console: Console, most_missing: int = MOST_MISSING) -> None:
        """Print it as `print_report` does."""
        if (kept := self._unchanged) is not None:
            print_report(kept.text, kept.missing, console, most_missing)
        else:
            text, missing = report_text(self.report), self.report.summary.missing
            print_report(text, missing, console, most_missing)


def report_of_sweep(sweep: Sweep, store: Store, tracking_uri: str | None) -> ReportOfSweep:
    """The results so far of a sweep. Raises TrackingError for a URI that is not MLflow's."""
    return ReportOfSweep(sweep, store, Tracker(store.root, tracking_uri))


def report_artifacts(report: Report, written: WrittenReport) -> dict[str, bytes]:
    """The files that MLflow gets of a report: itself, its numbers as a table, and its figures."""
    files = {name: (written.page.parent / name).read_bytes() for name in REPORT_FILES}
    table = results_frame(report.stages).to_csv(index=False)
    figures = named_panels(report).items()
    drawn = {f"figures/{name}.svg": panel.svg().encode() for name, panel in figures}
    return files | {"results.csv": table.encode()} | drawn
