"""Shows the progress of a run: a screen in a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fope_lab.config.console import say
from fope_lab.config.problems import counted
from fope_lab.orchestration.drivers import drivers_of_recorded
from fope_lab.orchestration.progress import (
    STYLES,
    RunProgress,
    Snapshot,
    StageProgress,
    States,
    is_blocked_by_another,
    listed,
    observe_states,
    stage_progress,
)
from fope_lab.planning.forecast import forecast_seconds
from fope_lab.planning.schedule import Amounts, TimeLeft, amounts
from fope_lab.stages.labels import distinguish
from fope_lab.store.attempts import over_attempts
from fope_lab.store.root import Store
from fope_lab.store.state import IMPORTANCE, StageState, Status
from fope_lab.sweep.graph import Stage, Sweep
from fope_lab.sweep.stage_filter import SHOWN_DIGITS
from fope_lab.tracking.outline import WIDTH, run_names

SHOWN_CAUSES, NAMED_STAGES = 3, 3
"""How many causes the screen shows, in a line each, and how many of its stages it names."""
LOOK_SECONDS = 2.0
"""The time between two looks of `watch` at the store."""
REFRESH_SECONDS = 0.5
LINE_SECONDS = 15.0
"""The time between two lines about a running stage, outside a terminal."""
OVERALL_SECONDS = 60.0
"""The time between two lines about the whole run, outside a terminal."""

Show = Callable[[Snapshot], None]


def seconds_text(seconds: float | None) -> str:
    """A duration as minutes and seconds, such as 1:15 for 75, with hours where there are any."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def summary(states: States) -> str:
    """The number of stages in each status, such as "12 of 20 done, 2 running, 6 waiting"."""
    counts = Counter(state.status for state in states.values())
    done = counts.pop(Status.DONE, 0)
    rest = (f"{counts[status]:,} {status}" for status in IMPORTANCE if counts[status])
    return ", ".join([f"{done:,} of {len(states):,} done", *rest])


def time_left_text(left: TimeLeft) -> str:
    """Such as "about 27:10 left, not counting 3 stages of unknown length"."""
    if left.seconds is None:
        return "time left unknown"
    rest = f", not counting {counted(left.unknown)} of unknown length" if left.unknown else ""
    return f"about {seconds_text(left.seconds)} left{rest}"


def cut(text: str, width: int) -> str:
    """The text in one line of at most `width` characters; it ends after a whole word and "…"."""
    return textwrap.shorten(text, width, placeholder=" …", break_on_hyphens=False)


def state_text(state: StageState) -> str:
    """The status of a stage, and whether another driver runs it."""
    return f"{state.status} elsewhere" if state.elsewhere else str(state.status)


def progress_cells(stage: Stage, state: StageState, store: Store) -> list[str]:
    """The step, loss, speed and time (left or taken) of a stage, or the reason of a problem."""
    *numbers, time_text, note = _cells(state, stage_progress(stage, state, store))
    return [*numbers, f"{time_text} {note}".strip() if state.is_done else time_text or note]


def _cells(state: StageState, told: StageProgress) -> list[str]:
    """The step, loss, speed and time (left or taken) of a stage, and a note."""
    speed, time_text, note = "", "", state.reason
    steps = "" if told.step is None else f"{told.step:,}/{told.total:,}"
    loss = "" if told.loss is None else f"{told.loss:.3f}"
    if told.tokens_per_second is not None:
        speed = f"{told.tokens_per_second:,.0f} tok/s"
    elif told.steps_per_second is not None:
        speed = f"{told.steps_per_second:,.{0 if told.steps_per_second >= 10 else 2}f}/s"
    if state.is_done:
        time_text = over_attempts(seconds_text(told.seconds), told.attempts)
        note = f"({state.reason})" if state.reason else ""
    elif state.status is Status.RUNNING and told.left is not None:
        time_text = f"{seconds_text(told.left)} left"
        if not note and told.flops_utilisation is not None:
            note = f"{told.flops_utilisation:.0%} MFU"
    return [steps, loss, speed, time_text, note]


@contextlib.contextmanager
def live_view(
    progress: RunProgress, states: Callable[[], States], console: Console
) -> Iterator[None]:
    """Show the progress of a run until the block ends."""
    stop = threading.Event()
    redraws = console.is_terminal and not console.is_dumb_terminal

    def show() -> None:
        screen = _screen(progress, console) if redraws else _lines(progress, console)
        with screen as refresh:
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
    names = run_names(progress.stages)
    size = console.size
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def show(now: Snapshot) -> None:
            nonlocal size
            if console.size != size:  # the terminal has wrapped what was drawn
                size = console.size
                live.stop()
                console.clear()
                live.start()
            screen = LiveScreen(progress.stages, names, now)
            live.update(screen.draw(size.width, size.height - 2), refresh=True)

        yield show


@dataclass(frozen=True)
class LiveScreen:
    """Draws a snapshot: counts, a bar, the first causes of failures, what runs, what finished last.

    `names` has the short name of each stage by its key.
    """

    stages: Sequence[Stage]
    names: Mapping[str, str]
    now: Snapshot

    def draw(self, width: int, height: int) -> Group:
        """The screen for a terminal of this size."""
        left = self.now.time_left
        bar = Table.grid(padding=(0, 2))
        times = f"{seconds_text(self.now.elapsed)} so far, {time_left_text(left)}"
        line = ProgressBar(1.0, left.share, width=max(10, min(30, width - len(times) - 24)))
        bar.add_row(line, f"{left.share:.0%} of the work", Text(times, overflow="ellipsis"))
        head = Text(summary(self.now.states), style="bold", no_wrap=True, overflow="ellipsis")
        failures = self._failures(width)
        waits = [Text(cut(f"waiting for {text}", width), "yellow") for text in self.now.waits]
        above = [*waits, *failures]
        return Group(head, bar, *above, self._stages(max(0, height - len(above) - 3)))

    def _failures(self, width: int) -> list[Text]:
        found = []
        for cause in reversed(self.now.causes[-SHOWN_CAUSES:]):
            names = [self.names[stage.key] for stage in cause.stages]
            whose = names[0] if len(names) == 1 else counted(len(names))
            text = cut(f"{cause.status} {whose}: {cause.error}", width)
            found.append(Text(text, style=STYLES[cause.status]))
            if len(names) > 1:
                found.append(Text(cut(f"  {listed(names, NAMED_STAGES)}", width), style="red"))
        if (more := len(self.now.causes) - SHOWN_CAUSES) > 0:
            found.append(Text(f"… and {more:,} more causes", style="red"))
        if blocked := sum(is_blocked_by_another(stage, self.now.states) for stage in self.stages):
            found.append(Text(f"blocked by them: {counted(blocked)}", style=STYLES[Status.BLOCKED]))
        return found

    def _stages(self, most: int) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column("stage", no_wrap=True, min_width=min(WIDTH, 12))
        table.add_column("key", no_wrap=True)
        for name in ("step", "loss", "speed", "time"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("", no_wrap=True)
        running = sorted(self.now.running, key=lambda key: self.now.running[key].step is None)
        rows = [(key, self._running(key), "") for key in running]
        rows += [
            (stage.key, ["done", *_cells(self.now.states[stage.key], told)[1:]], "dim")
            for stage, told in self.now.latest
        ]
        for key, cells, style in rows[:most]:
            table.add_row(self.names[key], key[:SHOWN_DIGITS], *cells, style=style)
        return table

    def _running(self, key: str) -> list[str]:
        state, told = self.now.states[key], self.now.running[key]
        first, *cells, last = _cells(state, told)
        if state.elsewhere:
            return [first, *cells, "by another run"]
        return ["starting" if told.step is None else first, *cells, last]


@contextlib.contextmanager
def _lines(progress: RunProgress, console: Console) -> Iterator[Show]:
    """A line for each change, now and then for what runs; stages that others block are counted."""
    known: dict[str, tuple[Status, str]] = {}
    printed: dict[str, float] = {}
    overall, told = time.monotonic(), -OVERALL_SECONDS
    labels = distinguish(progress.stages)

    def note(what: str, text: str) -> None:
        say(console, f"{time.strftime('%H:%M:%S')} {what:<12} {text}".rstrip())

    def show(now: Snapshot) -> None:
        nonlocal overall, told
        together: Counter[tuple[Status, str]] = Counter()
        clock = time.monotonic()
        for stage in progress.stages:
            state = now.states[stage.key]
            before = known.setdefault(stage.key, (state.status, state.reason))
            known[stage.key] = (state.status, state.reason)
            running = state.status is Status.RUNNING
            has_news = running and before[1] != state.reason
            changed = before[0] is not state.status or has_news
            quiet = clock - printed.setdefault(stage.key, clock) > LINE_SECONDS
            if changed and (state.is_unneeded or is_blocked_by_another(stage, now.states)):
                together[state.status, state.reason] += 1
            elif changed or (quiet and running):
                printed[stage.key] = clock
                cells = progress_cells(stage, state, progress.store)
                if has_news:
                    cells.append(state.reason)
                note(state_text(state), "  ".join([labels[stage.key], *filter(None, cells)]))
        for (status, reason), number in together.items():
            note(str(status), f"{counted(number)}: {reason}")
        if now.waits and clock - told > OVERALL_SECONDS:
            told = clock
            for text in now.waits:
                note("waiting", f"for {text}")
        if clock - overall > OVERALL_SECONDS:
            overall = clock
            share = f"{now.time_left.share:.0%} of the work"
            note("all", f"{summary(now.states)}; {share}, {time_left_text(now.time_left)}")

    yield show


def watch(sweeps: Sequence[Sweep], store: Store, console: Console) -> None:
    """Show the progress of runs that other processes make, until nothing runs the sweeps."""
    stages = list({stage.key: stage for sweep in sweeps for stage in sweep.stages}.values())
    states: States = observe_states(sweeps, store)
    most: Counter[str] = Counter()

    def room() -> Amounts:
        """The most that ran at once: this process does not know the cluster."""
        occupied: Counter[str] = Counter()
        for stage in stages:
            if states[stage.key].status is Status.RUNNING:
                occupied.update(amounts(stage.spec.resources))
        for name, amount in occupied.items():
            most[name] = max(most[name], amount)
        return most

    progress = RunProgress(stages, store, forecast_seconds(stages, store), room)
    with live_view(progress, lambda: states, console):
        while any(state.status is Status.RUNNING for state in states.values()) or any(
            drivers_of_recorded(store, sweep.name) for sweep in sweeps
        ):
            time.sleep(LOOK_SECONDS)
            states = observe_states(sweeps, store)
