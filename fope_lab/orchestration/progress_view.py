"""The progress of a run: a screen that is drawn again in a terminal, plain lines elsewhere.

The numbers come from the store, and the states from the run's searcher. `fope-lab status` asks the
store and its heartbeats instead (`observe_states`), from any machine.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from fope_lab.config.problems import counted
from fope_lab.orchestration.failures import States, is_blocked_by_another, problem_lines
from fope_lab.orchestration.live_screen import (
    STYLES,
    LiveScreen,
    loss_text,
    seconds_text,
    speed_text,
    steps_text,
    summary,
    time_left_text,
)
from fope_lab.orchestration.run_progress import RunProgress, Snapshot, stage_progress
from fope_lab.planning.needed_stages import NeededStates
from fope_lab.stages.labels import distinguish
from fope_lab.store import StageState, Status, Store
from fope_lab.store.observation import observe
from fope_lab.store.time_taken import over_attempts
from fope_lab.sweep.graph import Stage, Sweep
from fope_lab.sweep.plan import block_descendants, missing_input, read_states
from fope_lab.tracking.names import run_names

REFRESH_SECONDS = 0.5
LINE_SECONDS = 15.0
"""The time between two lines about a running stage, outside a terminal."""
OVERALL_SECONDS = 60.0
"""The time between two lines about the whole run, outside a terminal."""

Show = Callable[[Snapshot], None]
"""Shows a run at a moment."""


def print_line(console: Console, text: str, style: str | None = None) -> None:
    """Print a text as it is, however wide the console is."""
    console.print(text, style=style, soft_wrap=True, highlight=False, markup=False)


def print_problems(
    stages: Sequence[Stage],
    states: States,
    store: Store,
    console: Console,
    most: int | None = None,
) -> None:
    """Print why stages failed or can't go on, each cause once, and how many stages they block.

    Of each status, the first `most` causes are told.
    """
    for status, text in problem_lines(stages, states, store, most):
        print_line(console, text, style=STYLES[status])


def state_text(state: StageState) -> str:
    """The status of a stage, and whether another driver runs it."""
    return f"{state.status} elsewhere" if state.elsewhere else str(state.status)


def progress_cells(stage: Stage, state: StageState, store: Store) -> list[str]:
    """The step, loss, speed and time (left or taken) of a stage.

    The reason of a problem takes the place of the time.
    """
    told = stage_progress(stage, state, store)
    if state.is_done:
        taken = over_attempts(seconds_text(told.seconds), told.attempts)
        last = f"{taken} ({state.reason})" if state.reason else taken
    elif state.status is Status.RUNNING:
        last = f"{seconds_text(told.left)} left" if told.left is not None else state.reason
    else:
        last = state.reason
    return [steps_text(told), loss_text(told), speed_text(told), last]


@contextlib.contextmanager
def live_view(
    progress: RunProgress, states: Callable[[], States], console: Console
) -> Iterator[None]:
    """Show the progress of a run until the block ends."""
    stop = threading.Event()
    redraws = console.is_terminal and not console.is_dumb_terminal
    view = _screen if redraws else _lines

    def show() -> None:
        with view(progress, console) as refresh:
            refresh(progress.snapshot(states()))
            while not stop.wait(REFRESH_SECONDS):
                refresh(progress.snapshot(states()))
            refresh(progress.snapshot(states()))

    thread = threading.Thread(target=show, name="live", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def _screen(progress: RunProgress, console: Console) -> Iterator[Show]:
    """A screen that is drawn again at each refresh, and is gone at the end.

    It stays as high as it was at its highest, so that it does not jump. A terminal whose size
    changes has wrapped what was drawn: it is cleared, and drawn anew.
    """
    names = run_names(progress.stages)
    size, highest = console.size, 0
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def show(now: Snapshot) -> None:
            nonlocal size, highest
            if console.size != size:
                size, highest = console.size, 0
                live.stop()
                console.clear()
                live.start()
            screen = LiveScreen(progress.stages, names, now)
            lines = screen.lines(size.width, size.height - 1)  # the last line is the cursor's
            highest = max(highest, len(lines))
            live.update(Group(*lines, *[Text()] * (highest - len(lines))), refresh=True)

        yield show


@contextlib.contextmanager
def _lines(progress: RunProgress, console: Console) -> Iterator[Show]:
    """A line for each stage whose state changed, now and then for one that runs, and for the run.

    Stages that others block are counted.
    """
    known: dict[str, tuple[Status, str]] = {}
    printed: dict[str, float] = {}
    overall = time.monotonic()
    labels = distinguish(progress.stages)

    def say(what: str, text: str) -> None:
        print_line(console, f"{time.strftime('%H:%M:%S')} {what:<12} {text}".rstrip())

    def show(now: Snapshot) -> None:
        nonlocal overall
        together: Counter[tuple[Status, str]] = Counter()
        clock = time.monotonic()
        for stage in progress.stages:
            state = now.states[stage.key]
            before = known.setdefault(stage.key, (state.status, state.reason))
            known[stage.key] = (state.status, state.reason)
            running = state.status is Status.RUNNING
            changed = before[0] is not state.status or (running and before[1] != state.reason)
            quiet = clock - printed.setdefault(stage.key, clock) > LINE_SECONDS
            if changed and (state.is_unneeded or is_blocked_by_another(stage, now.states)):
                together[state.status, state.reason] += 1
            elif changed or (quiet and running):
                printed[stage.key] = clock
                cells = progress_cells(stage, state, progress.store)
                if running and before[1] != state.reason:
                    cells.append(state.reason)
                say(state_text(state), "  ".join([labels[stage.key], *filter(None, cells)]))
        for (status, reason), number in together.items():
            say(str(status), f"{counted(number)}: {reason}")
        if clock - overall > OVERALL_SECONDS:
            overall = clock
            left = now.time_left
            share = f"{left.share:.0%} of the work"
            say("all", f"{summary(now.states)}; {share}, {time_left_text(left)}")

    yield show


def observe_states(sweeps: Sequence[Sweep], store: Store) -> dict[str, StageState]:
    """The states of all stages as another process can tell them, which takes a moment if any runs.

    A stage that has not failed and lacks its data is blocked, as a plan says, and one whose seed a
    rule has not asked for says so.
    """
    stages = list({stage.key: stage for sweep in sweeps for stage in sweep.stages}.values())
    states = read_states(stages, store)
    running = [stage for stage in stages if states[stage.key].status is Status.RUNNING]
    live = Store(store.root)  # a snapshot would show no heartbeat
    observed = observe([live.folder(stage.kind, stage.key) for stage in running])
    states |= {stage.key: state for stage, state in zip(running, observed, strict=True)}
    for stage in stages:
        state = states[stage.key]
        may_start = state.status not in (Status.DONE, Status.RUNNING, Status.FAILED)
        if may_start and (missing := missing_input(stage, store)):
            states[stage.key] = replace(state, status=Status.BLOCKED, reason=missing)
    return NeededStates(sweeps, store).of(block_descendants(stages, states))
