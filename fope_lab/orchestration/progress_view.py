"""What a run looks like while it goes on: a live table in a terminal, plain lines elsewhere.

Everything shown comes from the store, so that `fope-lab status` in another terminal, or on another
machine, shows the same.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fope_lab.orchestration.phases import Phase, StageStatus
from fope_lab.store import Store
from fope_lab.store.lease import BEAT_SECONDS
from fope_lab.sweep.resolve import Stage

REFRESH_SECONDS = 0.5
LINE_SECONDS = 15.0  # between two lines about a running stage, where there is no terminal
STYLES = {
    Phase.WAITING: "dim",
    Phase.ELSEWHERE: "cyan",
    Phase.STARTED: "bold cyan",
    Phase.DONE: "green",
    Phase.FAILED: "bold red",
    Phase.BLOCKED: "red",
}
WORDS = {Phase.STARTED: "running", Phase.ELSEWHERE: "other driver"}
ORDER = (Phase.FAILED, Phase.STARTED, Phase.ELSEWHERE, Phase.WAITING, Phase.BLOCKED, Phase.DONE)
"""What matters most comes first, since a long sweep does not fit a screen."""


def seconds_text(seconds: float | None) -> str:
    """75 → '1:15'."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def progress_cells(stage: Stage, status: StageStatus, store: Store) -> list[str]:
    """Step, loss, tokens/s and time (left, or taken) of a stage."""
    folder = store.folder(stage.kind, stage.key)
    if status.phase is Phase.DONE:
        taken = seconds_text(folder.seconds())
        return ["", "", "", f"{taken} (cached)" if status.cached else taken]
    if status.phase in (Phase.FAILED, Phase.BLOCKED):
        return ["", "", "", status.reason.partition("\n")[0][:60]]
    progress = folder.progress() if status.phase is not Phase.WAITING else None
    if progress is None:
        return ["", "", "", ""]
    step, total = progress["step"], progress["total"]
    made = step - progress["first_step"]
    left = progress["seconds"] / made * (total - step) if made > 0 else None
    loss, speed = progress.get("loss"), progress.get("tokens_per_second")
    return [
        f"{step:,}/{total:,}",
        f"{loss:.3f}" if loss is not None else "",
        f"{speed:,.0f}" if speed is not None else "",
        f"{seconds_text(left)} left" if left is not None else "",
    ]


def status_table(
    stages: Sequence[Stage],
    status: Mapping[str, StageStatus],
    store: Store,
    limit: int | None = None,
) -> Table:
    """A table of all stages, or of the `limit` that matter most, and a count of every phase."""
    shown = sorted(stages, key=lambda s: ORDER.index(status[s.key].phase))[:limit]
    table = Table(title=summary(status), title_justify="left", box=None, pad_edge=False)
    table.add_column("stage", overflow="fold")
    table.add_column("state")
    for name in ("step", "loss", "tokens/s", "time"):
        table.add_column(name, justify="right")
    for stage in shown:
        one = status[stage.key]
        word = WORDS.get(one.phase, one.phase.value)
        state = Text(word, style=STYLES[one.phase])
        table.add_row(Text(stage.label), state, *progress_cells(stage, one, store))
    if len(shown) < len(stages):
        table.add_row(f"… and {len(stages) - len(shown)} more")
    return table


def summary(status: Mapping[str, StageStatus]) -> str:
    """'12 of 20 done, 2 running, 6 waiting'."""
    counts = Counter(one.phase for one in status.values())
    rest = [
        f"{counts[phase]} {WORDS.get(phase, phase.value)}"
        for phase in ORDER
        if counts[phase] and phase is not Phase.DONE
    ]
    return ", ".join([f"{counts[Phase.DONE]} of {len(status)} done", *rest])


@contextlib.contextmanager
def live_view(
    stages: Sequence[Stage],
    store: Store,
    status: Callable[[], Mapping[str, StageStatus]],
    console: Console,
) -> Iterator[None]:
    """Show the run until the block is left."""
    stop = threading.Event()
    show = _show_table if console.is_terminal else _show_lines
    thread = threading.Thread(
        target=show, args=(stages, store, status, console, stop), name="live", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _show_table(
    stages: Sequence[Stage],
    store: Store,
    status: Callable[[], Mapping[str, StageStatus]],
    console: Console,
    stop: threading.Event,
) -> None:
    def table() -> Table:
        return status_table(stages, status(), store, limit=max(5, console.height - 4))

    with Live(console=console, refresh_per_second=2, transient=False) as live:
        while not stop.wait(REFRESH_SECONDS):
            live.update(table())
        live.update(table())


def _show_lines(
    stages: Sequence[Stage],
    store: Store,
    status: Callable[[], Mapping[str, StageStatus]],
    console: Console,
    stop: threading.Event,
) -> None:
    known: dict[str, Phase] = {key: one.phase for key, one in status().items()}
    said = {stage.key: time.monotonic() for stage in stages}

    def line(stage: Stage, one: StageStatus) -> None:
        said[stage.key] = time.monotonic()
        cells = "  ".join(filter(None, progress_cells(stage, one, store)))
        word = WORDS.get(one.phase, one.phase.value)
        clock = time.strftime("%H:%M:%S")
        console.print(f"{clock} {word:<12} {stage.label}  {cells}".rstrip(), markup=False)

    def look() -> None:
        for stage in stages:
            one = status()[stage.key]
            changed = one.phase is not known[stage.key]
            known[stage.key] = one.phase
            quiet = time.monotonic() - said[stage.key] > LINE_SECONDS
            if changed or (quiet and one.phase is Phase.STARTED):
                line(stage, one)

    while not stop.wait(REFRESH_SECONDS):
        look()
    look()


def observed_status(stages: Sequence[Stage], store: Store) -> dict[str, StageStatus]:
    """Every stage's status as another process can tell: a running one's heartbeat moves."""
    found: dict[str, StageStatus] = {}
    open_beats: dict[str, int] = {}
    for stage in stages:
        folder = store.folder(stage.kind, stage.key)
        newest = folder.attempts.newest()
        failure = folder.failure()
        if folder.is_done():
            found[stage.key] = StageStatus(Phase.DONE)
        elif failure is not None:
            found[stage.key] = StageStatus(Phase.FAILED, reason=failure["error"])
        else:
            found[stage.key] = StageStatus(Phase.WAITING)
            if newest is not None and newest.end is None:
                open_beats[stage.key] = folder.attempts.beat(newest.token)
    if open_beats:
        time.sleep(BEAT_SECONDS * 1.5)
    for stage in stages:
        attempts = store.folder(stage.kind, stage.key).attempts
        moved = stage.key in open_beats and attempts.beat(
            attempts.newest_token()
        ) != open_beats.get(stage.key)
        if moved:
            found[stage.key] = StageStatus(Phase.STARTED)
        for parent in stage.parents.values():
            if found[parent].phase in (Phase.FAILED, Phase.BLOCKED):
                found[stage.key] = StageStatus(Phase.BLOCKED, reason="a parent failed")
    return found
