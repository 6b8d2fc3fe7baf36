"""What `fope-lab store list` prints: a line for each stage and the totals, or JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fope_lab.config.problems import counted
from fope_lab.housekeeping.contents import Contents
from fope_lab.housekeeping.wording import age, size_text
from fope_lab.orchestration.live_screen import STYLES
from fope_lab.stages.labels import ABSENT
from fope_lab.store.state import IMPORTANCE
from fope_lab.sweep.stage_filter import SHOWN_DIGITS


def print_contents(contents: Contents, console: Console) -> None:
    """Print the stages, and how many there are in each state with what size."""
    table = Table(box=None, pad_edge=False)
    for title in ("key", "kind", "stage", "state"):
        table.add_column(title, overflow="fold")
    for title in ("size", "age"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("sweeps", overflow="fold")
    for one in contents.stages:
        table.add_row(
            one.stage.key[:SHOWN_DIGITS],
            one.stage.kind,
            Text(one.stage.label or ABSENT),
            Text(str(one.state.status), style=STYLES[one.state.status]),
            size_text(one.size),
            ABSENT if one.since is None else age(one.since),
            Text(", ".join(dict.fromkeys(one.sweeps)) or ABSENT),
        )
    console.print(table)
    counts = Counter(one.state.status for one in contents.stages)
    states = ", ".join(f"{counts[status]} {status}" for status in IMPORTANCE if counts[status])
    total = size_text(sum(one.size for one in contents.stages))
    number = counted(len(contents.stages))
    text = f"{contents.root}: {number}, {total} ({states}); {size_text(contents.other_bytes)}"
    text += " of reports, MLflow's data and records"
    console.print(text, soft_wrap=True, highlight=False, markup=False)


def contents_json(contents: Contents) -> dict[str, Any]:
    """The stages with their sizes in bytes, and the bytes of all else that is in the store.

    `name` is empty for a stage that no recorded sweep has. `since` is when a stage got its state,
    in seconds since the epoch, or null.
    """
    stages = [
        {
            "key": one.stage.key,
            "name": one.stage.label,
            "kind": one.stage.kind,
            "state": str(one.state.status),
            "reason": one.state.reason,
            "bytes": one.size,
            "since": one.since,
            "sweeps": list(dict.fromkeys(one.sweeps)),
            "path": str(one.stage.folder.path),
        }
        for one in contents.stages
    ]
    return {"store": str(contents.root), "stages": stages, "other_bytes": contents.other_bytes}
