"""Evaluations of a model before and after it was changed, such as by an extension.

Two evaluations form a pair if they are of one kind with the same settings and texts, and one reads
a model that the model of the other comes from: its nearest ancestor that was evaluated so. The
stage that exchanges an embedding for an evaluation is such an ancestor's child, too.

A difference is paired over the seeds that both cells have: a seed fixes the data order and the
initial weights, so pairs remove its effect (statistics/t_test.py). If fewer than two seeds are in
both, and each cell has several, its interval is Welch's, which treats the seeds of both as
independent.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fope_lab.data.roles import MODEL
from fope_lab.report.results.aggregate import Cell, json_value
from fope_lab.report.results.layout import MetricGroup, Series
from fope_lab.report.results.stage_results import StageResult
from fope_lab.statistics.intervals import MeanEstimate, estimate_mean, welch_difference
from fope_lab.statistics.t_test import ALPHA, STUDENT_T
from fope_lab.sweep.graph import Stage

Change = Literal["better", "worse", "other"]
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
    measured = {(g.metric.name, key): s for g in groups for s in g.series for key in s.keys}
    found: dict[tuple[str, str, str], list[tuple[Series, Series]]] = {}
    for group in groups:
        name = group.metric.name
        for after in group.series:
            keys = {earlier[key] for key in after.keys if key in earlier}
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


@dataclass(frozen=True)
class Difference:
    """The second cell minus the first.

    `paired` says whether it is over the seeds that both have; `estimate.n` is their number, or else
    the smaller number of seeds. `change` is None if the interval has 0 in it, if there is none, and
    for a few equal differences, which chance alone gives often (statistics/t_test.py).
    """

    estimate: MeanEstimate
    paired: bool
    change: Change | None


def difference_of(first: Cell, second: Cell) -> Difference | None:
    """Return the difference of two cells of one metric; None if one of them has no finite mean."""
    values = [{v.seed: v.value for v in cell.values} for cell in (first, second)]
    common = [seed for seed in values[0] if seed in values[1]]
    samples = [list(of.values()) for of in values]
    decided = True
    if len(common) < 2 and all(len(sample) > 1 for sample in samples):
        estimate, paired = welch_difference(*samples), False
    elif common:
        differences = [values[1][seed] - values[0][seed] for seed in common]
        estimate, paired = estimate_mean(differences), True
        p = STUDENT_T.p(differences, 0.0, "greater")
        decided = p is not None and 2 * min(p, 1 - p) < ALPHA
    elif all(samples):
        estimate = _without_interval(statistics.fmean(samples[1]) - statistics.fmean(samples[0]))
        paired = False
    else:
        return None
    if estimate.mean is None:
        return None
    change = _change(estimate, first.metric.better) if decided else None
    return Difference(estimate, paired, change)


def _change(estimate: MeanEstimate, better: str | None) -> Change | None:
    """What a difference means, if its interval is above or below 0."""
    if estimate.ci95 is None or estimate.ci95[0] <= 0 <= estimate.ci95[1]:
        return None
    if better is None:
        return "other"
    return "better" if (estimate.ci95[0] > 0) == (better == "higher") else "worse"


def _without_interval(difference: float) -> MeanEstimate:
    return MeanEstimate(1, difference if math.isfinite(difference) else None, None)
