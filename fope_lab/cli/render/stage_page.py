"""What `fope-lab store show` prints of a stage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml
from rich.console import Console

from fope_lab.housekeeping.contents import state_since
from fope_lab.housekeeping.stage_details import StageDetails, made_with
from fope_lab.housekeeping.wording import moment, size_text, span
from fope_lab.store.lease import AttemptRecord
from fope_lab.store.time_taken import over_attempts

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
    """A configuration without the fields that are not set."""
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
