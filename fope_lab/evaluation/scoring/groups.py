"""Scores of a benchmark's questions, averaged in groups such as buckets of lengths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fope_lab.evaluation.scoring.scored_answers import ScoredQuestion, average, summary


class Group(NamedTuple):
    """Questions whose scores are averaged: `name` and the x of the metric, None if all are one."""

    name: str
    x: int | None


ALL = Group("all", None)
MEASURED = ("score", "stderr")
"""The fields of a summary that are logged as a metric."""


def summaries_by_group(
    groups: Iterable[Group], answered: Sequence[ScoredQuestion]
) -> dict[Group, dict[str, Any]]:
    """The summary of each group, by rising x; `groups` has the group of each question."""
    members: dict[Group, list[ScoredQuestion]] = {}
    for group, scored in zip(groups, answered, strict=True):
        members.setdefault(group, []).append(scored)
    return {group: summary(members[group]) for group in sorted(members, key=lambda g: g.x or 0)}


def averages_by_group(
    tasks: Sequence[Mapping[Group, Mapping[str, Any]]],
) -> dict[Group, dict[str, Any]]:
    """The mean of all tasks' scores and its standard error, in each group that every task has."""
    shared = [group for group in tasks[0] if all(group in task for task in tasks)]
    return {group: average([task[group] for task in tasks]) for group in shared}


def by_group(scores: Mapping[Group, dict[str, Any]]) -> dict[str, Any]:
    """What a result records beside the scores: by the group's name, or as such if all are one."""
    counts = {
        group.name: {name: value for name, value in found.items() if name not in MEASURED}
        for group, found in scores.items()
    }
    return counts[ALL.name] if set(scores) == {ALL} else {"buckets": counts}
