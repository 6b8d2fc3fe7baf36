"""Evaluations of a model before and after it was changed, such as by an extension.

Two evaluations form a pair if they are of one kind with the same settings and texts, and one reads
a model that the model of the other comes from: its nearest ancestor that was evaluated so. The
stage that exchanges an embedding for an evaluation is such an ancestor's child, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fope_lab.data.roles import MODEL
from fope_lab.report.results.aggregate import json_value
from fope_lab.report.results.layout import MetricGroup, Series
from fope_lab.report.results.stage_results import StageResult
from fope_lab.sweep.graph import Stage

NOT_SETTINGS = ("from", "resources")
"""The fields in which two evaluations of a pair may differ."""


@dataclass(frozen=True)
class BeforeAfter:
    """One metric of two sections of the sweep file: pairs of series, before and after.

    `before` and `after` are the groups that the series are from.
    """

    before: MetricGroup
    after: MetricGroup
    pairs: tuple[tuple[Series, Series], ...]


def pair_before_after(
    groups: Sequence[MetricGroup], results: Sequence[StageResult]
) -> tuple[BeforeAfter, ...]:
    """The pairs among groups of one metric in different sections, in the order of the sweep."""
    stages = {result.stage.key: result.stage for result in results}
    earlier = _earlier(stages)
    sections = {group.key: group for group in groups}
    measured = {(g.metric.name, key): s for g in groups for s in g.series for key in _keys(s)}
    found: dict[tuple[str, str, str], list[tuple[Series, Series]]] = {}
    for group in groups:
        name = group.metric.name
        for after in group.series:
            keys = {earlier[key] for key in _keys(after) if key in earlier}
            befores = {before.key: before for key in keys if (before := measured.get((name, key)))}
            froms = {stages[key].section for key in keys}
            if len(befores) == len(froms) == 1:  # all seeds come from one series
                [before], [section] = befores.values(), froms
                found.setdefault((section, group.section, name), []).append((before, after))
    return tuple(
        BeforeAfter(sections[before, metric], sections[after, metric], tuple(pairs))
        for (before, after, metric), pairs in found.items()
        if before != after  # else both are in one table
    )


def _keys(series: Series) -> tuple[str, ...]:
    """The keys of the stages of a series, which all of its cells share."""
    return next(iter(series.cells.values())).keys


def _earlier(stages: Mapping[str, Stage]) -> dict[str, str]:
    """For each evaluation that has one, the evaluation of the model before, by their keys."""
    evaluations = [s for s in stages.values() if not s.spec.trains and _model(s) is not None]
    known: dict[tuple[str, str], Stage] = {}
    for stage in evaluations:
        known.setdefault((_settings(stage), str(_model(stage))), stage)
    found = {}
    for stage in evaluations:
        settings = _settings(stage)
        models = _models(stage, stages)
        before = next((known[settings, m] for m in models if (settings, m) in known), None)
        if before is not None:
            found[stage.key] = before.key
    return found


def _models(stage: Stage, stages: Mapping[str, Stage]) -> Iterator[str]:
    """The models that the model of an evaluation comes from, the nearest first."""
    at = _model(stage)
    while at is not None and at in stages:
        at = _model(stages[at])
        if at is not None:
            yield at


def _model(stage: Stage) -> str | None:
    """The key of the stage that makes the model that a stage reads, or its checkpoint's folder."""
    return stage.parents.get(MODEL) or stage.checkpoints.get(MODEL)


def _settings(stage: Stage) -> str:
    """What two evaluations of a pair have in common: kind, settings, and what they read."""
    config = {name: v for name, v in stage.config.items() if name not in NOT_SETTINGS}
    texts = {role: key for role, key in stage.parents.items() if role != MODEL}
    return json.dumps(json_value([stage.kind, config, texts]), sort_keys=True)
