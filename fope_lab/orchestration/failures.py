"""Why stages of a sweep failed or can't go on: each cause once, with all stages that it stopped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fope_lab.config.problems import counted
from fope_lab.store import StageState, Status, Store
from fope_lab.sweep.graph import Stage

States = Mapping[str, StageState]
"""The state of every stage by its key."""

PROBLEMS = (Status.DAMAGED, Status.INTERRUPTED, Status.BLOCKED, Status.FAILED)
"""The statuses whose reason the user wants to know, in the order in which they are told."""
MOST_LABELS = 4
"""How many stages of a cause are named; the others are counted."""
MOST_CAUSES = 10
"""How many causes the end of a run tells of each status."""


@dataclass(frozen=True)
class Cause:
    """Why stages have a status: the whole error, and the log of the first of them."""

    status: Status
    reason: str
    stages: tuple[Stage, ...]
    log: Path | None

    def __str__(self) -> str:
        """Such as "failed 3 stages: out of memory" with the stages, or "failed LABEL: …"."""
        where = f"log: {self.log}" if self.log else ""
        if len(self.stages) == 1:
            text = f"{self.status} {self.stages[0].label}: {self.reason}"
            return f"{text} ({where})" if where else text
        names = listed([stage.label for stage in self.stages], MOST_LABELS)
        text = f"{self.status} {len(self.stages)} stages: {self.reason}\n  {names}"
        return f"{text} ({where.replace('log', 'log of the first', 1)})" if where else text


def causes(stages: Sequence[Stage], states: States, store: Store) -> list[Cause]:
    """The causes of all problems, those of failures last; stages that wait for others have none."""
    found: dict[tuple[Status, str], list[tuple[Stage, str, Path]]] = {}
    for stage in stages:
        state = states.get(stage.key)
        if state is None or state.status not in PROBLEMS or is_blocked_by_another(stage, states):
            continue
        end = (state.attempt and state.attempt.end) or {}
        failed = state.status is Status.FAILED and "error" in end
        reason = str(end["error"]) if failed else state.reason
        folder = store.folder(stage.kind, stage.key)
        same = reason.replace(str(folder.path), "").replace(stage.key, "").replace(stage.label, "")
        alike = found.setdefault((state.status, same), [])
        alike.append((stage, reason, folder.paths.log))
    return [
        Cause(
            status,
            alike[0][1],
            tuple(stage for stage, _, _ in alike),
            alike[0][2] if alike[0][2].exists() else None,
        )
        for (status, _), alike in sorted(found.items(), key=lambda item: PROBLEMS.index(item[0][0]))
    ]


def is_blocked_by_another(stage: Stage, states: States) -> bool:
    """Whether a stage is blocked because an ancestor failed or is blocked, and not by itself."""
    if stage.key not in states or states[stage.key].status is not Status.BLOCKED:
        return False
    parents = (states[key].status for key in stage.parents.values() if key in states)
    return any(status in (Status.FAILED, Status.BLOCKED) for status in parents)


def problem_lines(
    stages: Sequence[Stage], states: States, store: Store, most: int | None = None
) -> Iterator[tuple[Status, str]]:
    """A text for each cause, with its status, and last how many stages are blocked by them.

    Of each status, the first `most` causes are told, and the others counted.
    """
    found = causes(stages, states, store)
    for status in PROBLEMS:
        alike = [cause for cause in found if cause.status is status]
        for cause in alike[:most]:
            yield status, str(cause)
        if rest := alike[most:] if most is not None else []:
            of = counted(sum(len(cause.stages) for cause in rest))
            text = f"{status} {of} more, for {len(rest)} other reasons; see `fope-lab status`"
            yield status, text
    if blocked := sum(is_blocked_by_another(stage, states) for stage in stages):
        yield Status.BLOCKED, f"blocked by them: {counted(blocked)}"


def listed(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f", … and {more:,} more" if more > 0 else "")


def statuses(stages: Iterable[Stage], states: States) -> dict[Status, list[Stage]]:
    """The stages by their status."""
    found: dict[Status, list[Stage]] = {}
    for stage in stages:
        found.setdefault(states[stage.key].status, []).append(stage)
    return found
