"""What `fope-lab store` prints: a line for each stage and the totals, and all of one stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fope_lab.cli.housekeeping import contents
from fope_lab.cli.housekeeping.contents import StoredStage, moment, size_text, span, state_since
from fope_lab.cli.housekeeping.known_stages import KnownStage, known_stages, parents_of, references
from fope_lab.config.console import say
from fope_lab.config.problems import counted
from fope_lab.orchestration.progress import STYLES
from fope_lab.stages.labels import ABSENT
from fope_lab.store.attempts import AttemptRecord, attempt_seconds, over_attempts
from fope_lab.store.checkout import Checkout
from fope_lab.store.folder import StageFolder, observe
from fope_lab.store.root import Store
from fope_lab.store.state import IMPORTANCE
from fope_lab.sweep.stage_filter import SHOWN_DIGITS

WIDTH = 100
MOST_FILES = 30
"""How many files are listed; the rest is counted."""


def print_contents(
    store: Store, stages: Sequence[StoredStage], other_bytes: int, now: float, console: Console
) -> None:
    """Print the stages with their ages at `now`, and how many are in each state with what size."""
    table = Table(box=None, pad_edge=False)
    for title in ("key", "kind", "stage", "state"):
        table.add_column(title, overflow="fold")
    for title in ("size", "age"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("sweeps", overflow="fold")
    for one in stages:
        since = state_since(one.state)
        table.add_row(
            one.stage.key[:SHOWN_DIGITS],
            one.stage.kind,
            Text(one.stage.label or ABSENT),
            Text(str(one.state.status), style=STYLES[one.state.status]),
            size_text(one.size),
            ABSENT if since is None else span(now - since),
            Text(", ".join(one.sweeps) or ABSENT),
        )
    console.print(table)
    counts = Counter(one.state.status for one in stages)
    states = ", ".join(f"{counts[status]} {status}" for status in IMPORTANCE if counts[status])
    total = f"{counted(len(stages))}, {size_text(sum(one.size for one in stages))}"
    other = f"{size_text(other_bytes)} of reports, MLflow's data and records"
    say(console, f"{store}: {total} ({states}); {other}")


def contents_json(store: Store, stages: Sequence[StoredStage], other_bytes: int) -> dict[str, Any]:
    """The stages with their sizes in bytes, and the bytes of all else that is in the store.

    `name` is empty for a stage that no recorded sweep has. `since` is when a stage got its state,
    in seconds since the epoch, or null.
    """
    rows = [
        {
            "key": one.stage.key,
            "name": one.stage.label,
            "kind": one.stage.kind,
            "state": str(one.state.status),
            "reason": one.state.reason,
            "bytes": one.size,
            "since": state_since(one.state),
            "sweeps": list(one.sweeps),
            "path": str(one.stage.folder.path),
        }
        for one in stages
    ]
    return {"store": str(store), "stages": rows, "other_bytes": other_bytes}


def stage_page(store: Store, stage: KnownStage) -> Iterator[str]:
    """The lines of a page about a stage: what it was asked, its past, its relatives, its files."""
    known, folder = known_stages(store), stage.folder
    [state] = observe([folder])
    names = [f"{one.sweep} ({one.label})" for one in known if one.key == stage.key and one.sweep]
    since = state_since(state)
    when = "" if since is None else f" since {moment(since)}"
    yield stage.label or stage.kind
    yield f"  key     {stage.key}"
    yield f"  kind    {stage.kind}"
    yield f"  sweeps  {', '.join(names) or 'no recorded sweep has it'}"
    yield f"  state   {state.status}{when}{f' ({state.reason})' if state.reason else ''}"
    if taken := folder.time_taken():
        yield f"  time    {over_attempts(span(taken.seconds), taken.attempts)}"
    yield f"  folder  {folder.path}"
    config = (folder.request() or {}).get("config")
    if config and isinstance(config, Mapping):
        text = yaml.safe_dump(
            _without_nothing(config),
            sort_keys=False,
            allow_unicode=True,
            default_flow_style=None,  # mappings without a mapping inside go on one line
            width=WIDTH,
        )
        yield from _section("configuration", text.splitlines())
    attempts = folder.attempts
    records = filter(None, map(attempts.record, range(1, attempts.newest_token() + 1)))
    lines = (_attempt(record, attempt_seconds(attempts, record)) for record in records)
    yield from _section("attempts", lines)
    titles = {one.key: one.title for one in reversed(known)}
    parents = (parents_of(folder) or stage.parents).items()
    yield from _section("parents", (f"{role}: {titles.get(of, of)}" for role, of in parents))
    refers = references(store, known).items()
    yield from _section("children", (titles[key] for key, of in refers if stage.key in of))
    yield from _section("files", _files(folder))


def _without_nothing(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {name: _without_nothing(inner) for name, inner in value.items() if inner is not None}


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    found = list(lines)
    yield title if found else f"{title}: none"
    yield from (f"  {line}" for line in found)


def _attempt(attempt: AttemptRecord, seconds: float) -> str:
    details, end = attempt.details, attempt.end or {}
    text = f"{attempt.token}"
    if (began := details.get("started")) is not None:
        text += f"  {moment(began)}"
    if reason := details.get("set_aside"):
        return f"{text}  moved the output before it away: {reason}"
    if attempt.end is None:
        text += f"  has not ended, was at work for at least {span(seconds)}"
    else:
        text += f"  {attempt.ending} after {span(seconds)}"
    if lines := str(end.get("error") or "").strip().splitlines():
        text += f": {lines[0]}"
    made_by = details.get("made_by") or {}
    words = {
        "on": details.get("host"),
        "device": made_by.get("device"),
        "commit": Checkout.recorded(made_by),
        "driver": attempt.owner,
    }
    return "; ".join([text, *(f"{name} {value}" for name, value in words.items() if value)])


def _files(folder: StageFolder) -> Iterator[str]:
    """The largest files, by their paths from the folder, and the sums of the others and of all."""
    files = [*contents.files_with_sizes(folder.path)] if folder.path.is_dir() else []
    files.sort(key=lambda file: (-file[1], file[0]))
    for path, size in files[:MOST_FILES]:
        yield f"{size_text(size):>8}  {path.relative_to(folder.path)}"
    if rest := files[MOST_FILES:]:
        yield f"{size_text(sum(size for _, size in rest)):>8}  in {len(rest)} more files"
    if files:
        yield f"{size_text(sum(size for _, size in files)):>8}  in all"
