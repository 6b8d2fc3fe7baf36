"""What `fope-lab store` prints: a line for each stage and the totals, and all of one stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fope_lab.config.problems import counted
from fope_lab.housekeeping.contents import (
    Contents,
    StageDetails,
    age,
    made_with,
    moment,
    size_text,
    span,
    state_since,
)
from fope_lab.orchestration.live_view import STYLES
from fope_lab.stages.labels import ABSENT
from fope_lab.store.attempts import AttemptRecord, over_attempts
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


WIDTH = 100
MOST_FILES = 30
"""How many files are listed; the rest is counted."""


def print_details(details: StageDetails, console: Console) -> None:
    """Print the sections of the page, each line as it is."""
    for line in _lines(details):
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def _lines(details: StageDetails) -> Iterator[str]:
    stage, state = details.stage, details.state
    since = state_since(state)
    yield stage.label or stage.kind
    yield f"  key     {stage.key}"
    yield f"  kind    {stage.kind}"
    sweeps = [f"{one.sweep} ({one.label})" for one in details.names]
    yield f"  sweeps  {', '.join(sweeps) or 'no recorded sweep has it'}"
    when = "" if since is None else f" since {moment(since)}"
    yield f"  state   {state.status}{when}{f' ({state.reason})' if state.reason else ''}"
    if taken := details.time_taken:
        yield f"  time    {over_attempts(span(taken.seconds), taken.attempts)}"
    yield f"  folder  {stage.folder.path}"
    if details.config:
        text = yaml.safe_dump(
            _without_nothing(details.config),
            sort_keys=False,
            allow_unicode=True,
            default_flow_style=None,  # what has no mapping inside is on one line
            width=WIDTH,
        )
        yield from _section("configuration", text.splitlines())
    attempts = (_attempt(one, details.seconds[one.token]) for one in details.attempts)
    yield from _section("attempts", attempts)
    titles = details.titles
    parents = (f"{role}: {titles.get(of, of)}" for role, of in details.parents.items())
    yield from _section("parents", parents)
    yield from _section("children", (titles.get(key, key) for key in details.children))
    yield from _section("files", _files(details))


def _without_nothing(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {name: _without_nothing(inner) for name, inner in value.items() if inner is not None}


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    found = list(lines)
    yield title if found else f"{title}: none"
    yield from (f"  {line}" for line in found)


def _attempt(attempt: AttemptRecord, seconds: float) -> str:
    began, end = attempt.details.get("started"), attempt.end or {}
    text = f"{attempt.token}"
    if began is not None:
        text += f"  {moment(began)}"
    if reason := attempt.details.get("set_aside"):
        return f"{text}  moved the output before it away: {reason}"
    if attempt.end is None:
        text += f"  has not ended, was at work for at least {span(seconds)}"
    else:
        text += f"  {attempt.ending} after {span(seconds)}"
    if lines := str(end.get("error") or "").strip().splitlines():
        text += f": {lines[0]}"
    return "; ".join([text, *made_with(attempt)])


def _files(details: StageDetails) -> Iterator[str]:
    files = list(details.files.items())
    for path, size in files[:MOST_FILES]:
        yield f"{size_text(size):>8}  {path}"
    if rest := files[MOST_FILES:]:
        yield f"{size_text(sum(size for _, size in rest)):>8}  in {len(rest)} more files"
    if files:
        yield f"{size_text(sum(details.files.values())):>8}  in all"
