"""Evaluations of a model before and after it was changed, such as by an extension.

Two evaluations form a pair if they are of one kind with the same settings and texts, and one reads
a model that the model of the other comes from: its nearest ancestor that was evaluated so. The
stage that exchanges an embedding for an evaluation is such an ancestor's child, too.

A difference is paired over the seeds that both cells have: a seed fixes the data order and the
initial weights, so pairs remove its effect (statistics/decision.py). If fewer than two seeds are in
both, and each cell has several, its interval is Welch's, which treats the seeds of both as
independent.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fope_lab.data.roles import MODEL
from fope_lab.report.results.aggregate import Cell, canonical
from fope_lab.report.results.layout import MetricGroup, Series
from fope_lab.report.results.stage_results import StageResult
from fope_lab.statistics.decision import ALPHA, STUDENT_T
from fope_lab.statistics.intervals import MeanEstimate, estimate_mean, welch_difference
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
    by_key = {group.key: group for group in groups}
    measured = {
        (g.metric.name, key): (g, s) for g in groups for s in g.series for key in s.first.keys
    }
    found: dict[tuple[tuple[str, str], tuple[str, str]], list[tuple[Series, Series]]] = {}
    for group in groups:
        for after in group.series:
            keys = {earlier[key] for key in after.first.keys if key in earlier}
            befores = [measured.get((group.metric.name, key)) for key in keys]
            known = {id(one[1]): one for one in befores if one is not None}
            if len(known) == len({stages[key].section for key in keys}) == 1:  # one for all seeds
                [(before_group, before)] = known.values()
                found.setdefault((before_group.key, group.key), []).append((before, after))
    return tuple(
        BeforeAfter(by_key[before], by_key[after], tuple(pairs))
        for (before, after), pairs in found.items()
        if before != after  # else both are in one table
    )


def _earlier(stages: Mapping[str, Stage]) -> dict[str, str]:
    """For each evaluation that has one, the evaluation of the model before, by their keys."""
    evaluations = [s for s in stages.values() if not s.spec.trains and _model(s) is not None]
    known: dict[tuple[str, str | None], str] = {}
    for stage in evaluations:
        known.setdefault((_settings(stage), _model(stage)), stage.key)
    found = {}
    for stage in evaluations:
        settings, at = _settings(stage), _model(stage)
        while at is not None and at in stages and stage.key not in found:
            at = _model(stages[at])  # the models that this one comes from, the nearest first
            if at is not None and (settings, at) in known:
                found[stage.key] = known[settings, at]
    return found


def _model(stage: Stage) -> str | None:
    """The key of the stage that makes the model that a stage reads, or its checkpoint's folder."""
    return stage.parents.get(MODEL) or stage.checkpoints.get(MODEL)


def _settings(stage: Stage) -> str:
    """What two evaluations of a pair have in common: kind, settings, and what they read."""
    config = {name: v for name, v in stage.config.items() if name not in NOT_SETTINGS}
    texts = {role: key for role, key in stage.parents.items() if role != MODEL}
    return canonical([stage.kind, config, texts])


@dataclass(frozen=True)
class Difference:
    """The second cell minus the first.

    `paired` says whether it is over the seeds that both have; `estimate.n` is their number, or else
    the smaller number of seeds. `change` is None if the interval has 0 in it, if there is none, and
    for a few equal differences, which chance alone gives often (statistics/decision.py).
    """

    estimate: MeanEstimate
    paired: bool
    change: Change | None


def difference_of(first: Cell, second: Cell) -> Difference | None:
    """Return the difference of two cells of one metric; None if one of them has no finite mean."""
    befores, afters = ({v.seed: v.value for v in cell.values} for cell in (first, second))
    differences = [afters[seed] - befores[seed] for seed in befores if seed in afters]
    paired, decided = bool(differences), True
    if len(differences) < 2 and min(len(befores), len(afters)) > 1:
        paired = False
        estimate = welch_difference([*befores.values()], [*afters.values()])
    elif paired:
        estimate = estimate_mean(differences)
        p = STUDENT_T.p(differences, 0.0, "greater")
        decided = p is not None and 2 * min(p, 1 - p) < ALPHA
    elif befores and afters:
        after, before = (statistics.fmean(values.values()) for values in (afters, befores))
        estimate = estimate_mean([after - before])
    else:
        return None
    if estimate.mean is None:
        return None
    return Difference(estimate, paired, _change(estimate, first.metric.better) if decided else None)


def _change(estimate: MeanEstimate, better: str | None) -> Change | None:
    if estimate.ci95 is None or estimate.ci95[0] <= 0 <= estimate.ci95[1]:
        return None
    if better is None:
        return "other"
    return "better" if (estimate.ci95[0] > 0) == (better == "higher") else "worse"
