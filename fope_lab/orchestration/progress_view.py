"""The progress of a run: a live table in a terminal, plain lines elsewhere.

The numbers come from the store. The states come from the caller: in a run from its searcher, and
for `fope-lab status`, which works from any machine, from the store and its heartbeats
(`observe_states`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import shorten

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fope_lab.store import StageState, Status, Store
from fope_lab.store.observation import observe
from fope_lab.store.state import IMPORTANCE
from fope_lab.sweep.graph import Stage
from fope_lab.sweep.stage_states import block_descendants, read_states

States = Mapping[str, StageState]
"""The state of every stage by its key."""

REFRESH_SECONDS = 0.5
LINE_SECONDS = 15.0  # between two lines about a running stage, outside a terminal
STYLES = {
    Status.FAILED: "bold red",
    Status.RUNNING: "bold cyan",
    Status.DAMAGED: "yellow",
    Status.INTERRUPTED: "yellow",
    Status.WAITING: "dim",
    Status.NOT_STARTED: "dim",
    Status.BLOCKED: "red",
    Status.DONE: "green",
}
"""How each status is drawn."""
REASON_WIDTH = 44  # of a reason in the table, in characters; `print_problems` prints it whole
PROBLEMS = (Status.FAILED, Status.BLOCKED, Status.DAMAGED, Status.INTERRUPTED)
"""The statuses whose reason the user wants to know."""


def seconds_text(seconds: float | None) -> str:
    """A duration as minutes and seconds, such as 1:15 for 75, with hours where there are any."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def state_text(state: StageState) -> str:
    """The status of a stage, and whether another driver runs it."""
    return f"{state.status} elsewhere" if state.elsewhere else str(state.status)


def progress_cells(stage: Stage, state: StageState, store: Store) -> list[str]:
    """The step, loss, tokens per second and time (left or taken) of a stage.

    The reason of a problem takes the place of the time.
    """
    folder = store.folder(stage.kind, stage.key)
    if state.is_done:
        taken = seconds_text(folder.seconds())
        return ["", "", "", f"{taken} ({state.reason})" if state.reason else taken]
    progress = folder.progress() if state.status in (Status.RUNNING, Status.INTERRUPTED) else None
    if progress is None:
        return ["", "", "", state.reason if state.status in PROBLEMS else ""]
    step, total = progress["step"], progress["total"]
    made = step - progress["first_step"]
    last = state.reason
    if state.status is Status.RUNNING:
        left = progress["seconds"] / made * (total - step) if made > 0 else None
        last = f"{seconds_text(left)} left" if left is not None else ""
    loss, speed = progress.get("loss"), progress.get("tokens_per_second")
    return [
        f"{step:,}/{total:,}",
        f"{loss:.3f}" if loss is not None else "",
        f"{speed:,.0f}" if speed is not None else "",
        last,
    ]


def print_problems(stages: Sequence[Stage], states: States, store: Store, console: Console) -> None:
    """Print the stages that failed or can't go on, each with its whole error and its log."""
    for stage in stages:
        state = states.get(stage.key)
        if state is None or state.status not in PROBLEMS:
            continue
        end = (state.attempt and state.attempt.end) or {}
        reason = end["error"] if state.status is Status.FAILED and "error" in end else state.reason
        log = store.folder(stage.kind, stage.key).paths.log
        where = f" (log: {log})" if log.exists() else ""
        text = f"{state.status} {stage.label}: {reason}{where}"
        print_line(console, text, style=STYLES[state.status])


def print_line(console: Console, text: str, style: str | None = None) -> None:
    """Print a text as it is, however wide the console is."""
    console.print(text, style=style, soft_wrap=True, highlight=False, markup=False)


def states_table(
    stages: Sequence[Stage], states: States, store: Store, limit: int | None = None
) -> Table:
    """A table of all stages, or of the `limit` most important ones, under their counts."""
    shown = sorted(stages, key=lambda stage: IMPORTANCE.index(states[stage.key].status))[:limit]
    table = Table(title=summary(states), title_justify="left", box=None, pad_edge=False)
    table.add_column("stage", overflow="fold")
    table.add_column("state")
    for name in ("step", "loss", "tokens/s", "time"):
        table.add_column(name, justify="right")
    for stage in shown:
        state = states[stage.key]
        text = Text(state_text(state), style=STYLES[state.status])
        *numbers, last = progress_cells(stage, state, store)
        table.add_row(
            Text(stage.label), text, *numbers, Text(shorten(last, REASON_WIDTH, placeholder="…"))
        )
    if len(shown) < len(stages):
        table.add_row(f"… and {len(stages) - len(shown)} more")
    return table


def summary(states: States) -> str:
    """The number of stages in each status, such as "12 of 20 done, 2 running, 6 waiting"."""
    counts = Counter(state.status for state in states.values())
    rest = [
        f"{counts[status]} {status}"
        for status in IMPORTANCE
        if counts[status] and status is not Status.DONE
    ]
    return ", ".join([f"{counts[Status.DONE]} of {len(states)} done", *rest])


@contextlib.contextmanager
def live_view(
    stages: Sequence[Stage], store: Store, states: Callable[[], States], console: Console
) -> Iterator[None]:
    """Show the progress of a run until the block ends."""
    stop = threading.Event()

    def show() -> None:
        with (_live_table if console.is_terminal else _lines)(stages, store, console) as refresh:
            refresh(states())
            while not stop.wait(REFRESH_SECONDS):
                refresh(states())
            refresh(states())

    thread = threading.Thread(target=show, name="live", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


Refresh = Callable[[States], None]
"""Shows the states that are given to it."""


@contextlib.contextmanager
def _live_table(stages: Sequence[Stage], store: Store, console: Console) -> Iterator[Refresh]:
    """A table that is drawn again at each refresh."""
    with Live(console=console, refresh_per_second=2, transient=False) as live:
        yield lambda states: live.update(
            states_table(stages, states, store, limit=max(5, console.height - 4))
        )


@contextlib.contextmanager
def _lines(stages: Sequence[Stage], store: Store, console: Console) -> Iterator[Refresh]:
    """A line for each stage whose status changed, and now and then for one that runs."""
    known: dict[str, Status] = {}
    printed = {stage.key: time.monotonic() for stage in stages}

    def refresh(states: States) -> None:
        for stage in stages:
            state = states[stage.key]
            changed = known.setdefault(stage.key, state.status) is not state.status
            quiet = time.monotonic() - printed[stage.key] > LINE_SECONDS
            if changed or (quiet and state.status is Status.RUNNING):
                known[stage.key], printed[stage.key] = state.status, time.monotonic()
                cells = "  ".join(filter(None, progress_cells(stage, state, store)))
                clock = time.strftime("%H:%M:%S")
                text = f"{clock} {state_text(state):<12} {stage.label}  {cells}"
                console.print(text.rstrip(), markup=False)

    yield refresh


def observe_states(stages: Sequence[Stage], store: Store) -> dict[str, StageState]:
    """The states of all stages as another process can tell them, which takes a moment if any runs.

    `stages` come parents first.
    """
    states = read_states(stages, store)
    running = [stage for stage in stages if states[stage.key].status is Status.RUNNING]
    observed = observe([store.folder(stage.kind, stage.key) for stage in running])
    states |= {stage.key: state for stage, state in zip(running, observed, strict=True)}
    return block_descendants(stages, states)
