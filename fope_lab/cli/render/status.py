"""What `fope-lab status` prints of a sweep: a table of its stages, or JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fope_lab.config.console import say
from fope_lab.config.problems import counted
from fope_lab.orchestration.drivers import LiveDriver
from fope_lab.orchestration.live_view import cut, progress_cells, state_text, summary
from fope_lab.orchestration.progress import STYLES, States, stage_progress
from fope_lab.stages.labels import distinguish
from fope_lab.store.root import Store
from fope_lab.store.state import IMPORTANCE, Status
from fope_lab.sweep import Sweep
from fope_lab.sweep.graph import Stage

REASON_WIDTH = 44
"""The most characters of a reason in the table; the causes below it are printed whole."""
MANY = 1000
"""The number of stages above which those of one name share a row where nothing is to be seen."""
CALM = frozenset(IMPORTANCE[IMPORTANCE.index(Status.WAITING) :])
"""The statuses in which nothing is to be seen of a stage."""


def print_states(
    stages: Sequence[Stage],
    states: States,
    store: Store,
    console: Console,
    *,
    every: bool = False,
) -> None:
    """Print a table of the stages, the most important first, under their counts. More than MANY are
    grouped by name where they wait or are done, unless `every` row is asked for."""
    table = Table(title=summary(states), title_justify="left", box=None, pad_edge=False)
    table.add_column("stage", overflow="fold")
    table.add_column("state")
    for name in ("step", "loss", "speed", "time"):
        table.add_column(name, justify="right")
    shared = frozenset[Status]() if every or len(stages) <= MANY else CALM
    rows: Counter[tuple[str, Status]] = Counter()
    labels = distinguish(stages)
    for stage in sorted(stages, key=lambda one: IMPORTANCE.index(states[one.key].status)):
        state = states[stage.key]
        if state.status in shared:
            rows[stage.section, state.status] += 1
            continue
        text = Text(state_text(state), style=STYLES[state.status])
        *numbers, last = progress_cells(stage, state, store)
        table.add_row(Text(labels[stage.key]), text, *numbers, Text(cut(last, REASON_WIDTH)))
    for (section, status), count in rows.items():
        table.add_row(Text(f"{section}: {counted(count)}"), Text(status, style=STYLES[status]))
    console.print(table)
    if rows:
        say(console, "Stages that wait or are done share a row by name; --all lists every stage.")


def status_json(
    sweep: Sweep, states: States, store: Store, drivers: Sequence[LiveDriver]
) -> dict[str, Any]:
    """A sweep's drivers, the number of stages in each state, and each stage with its progress.

    `error` is the whole error of a failed stage, and `log` the file that has its traceback. What a
    stage has not told of its progress is null; `seconds` and `left` are times in seconds. The
    `seconds` of a finished stage are those of all its `attempts`.
    """
    counts = Counter(states[stage.key].status for stage in sweep.stages)
    return {
        "name": sweep.name,
        "path": str(sweep.path),
        "store": str(store),
        "drivers": [_driver(driver) for driver in drivers],
        "counts": {str(status): counts[status] for status in Status},
        "stages": [_stage(stage, states, store) for stage in sweep.stages],
    }


def _driver(driver: LiveDriver) -> dict[str, Any]:
    process = driver.process
    place = {"host": process and process.host, "pid": process and process.pid}
    return {"name": driver.name, **place, "sweeps": list(driver.sweeps)}


def _stage(stage: Stage, states: States, store: Store) -> dict[str, Any]:
    state, folder = states[stage.key], store.folder(stage.kind, stage.key)
    end = (state.attempt and state.attempt.end) or {}
    log = folder.paths.log
    return {
        "key": stage.key,
        "name": stage.label,
        "kind": stage.kind,
        "state": str(state.status),
        "reason": state.reason,
        "error": end.get("error") if state.status is Status.FAILED else None,
        "log": str(log) if log.exists() else None,
        **asdict(stage_progress(stage, state, store)),
    }
