"""What the seeds say of a difference: which of several cells is the best, and what an evaluation
says of a model before and after it was changed, such as by an extension.

A best mean alone says little: of equal methods, one always has it. A cell counts as clearly best
only if it is better than every other in the sweep's test over the seeds that both have, each at
ALPHA. Of two equal methods one is then called best with probability ALPHA at most; of more, more
rarely, since it must be better than all. One seed never suffices.

Two evaluations form a pair if they are of one kind with the same settings and texts, and one reads
a model that the model of the other comes from: its nearest ancestor that was evaluated so. The
stage that exchanges an embedding for an evaluation is such an ancestor's child, too. A difference
is over the seeds that both cells have; without such a seed it is that of the means, and decides
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fope_lab.config.roles import MODEL
from fope_lab.report.results.cells import Cell, StageResult, canonical
from fope_lab.report.results.layout import MetricGroup, Series
from fope_lab.stages.metric import LENGTH
from fope_lab.statistics.decision import ALPHA, STUDENT_T, SeedTest
from fope_lab.statistics.intervals import MeanEstimate, estimate_mean
from fope_lab.sweep.graph import Stage


def meaning(test: SeedTest) -> str:
    """Say what a table says of the entry that it marks."""
    return (
        f"better than every other row of its column in a {test.name} over the seeds"
        f" (p < {ALPHA:g} each)"
    )


def clearly_best(cells: Sequence[Cell], test: SeedTest) -> Cell | None:
    """Return the cell that is better than every other by the test, or None.

    There is none among fewer than two cells, or where the metric has no better end, or while a cell
    has no value yet.
    """
    best = best_mean(cells)
    if best is None or len(cells) < 2:
        return None
    others = (cell for cell in cells if cell is not best)
    return best if all(is_clearly_better(best, other, test) for other in others) else None


def best_mean(cells: Sequence[Cell]) -> Cell | None:
    """The first cell with the best mean; None if none has a mean, or the metric no better end."""
    means = [(cell.estimate.mean, cell) for cell in cells if cell.estimate.mean is not None]
    if not means or means[0][1].metric.better is None:
        return None
    choose = min if means[0][1].metric.better == "lower" else max
    return choose(means, key=lambda one: one[0])[1]


def is_clearly_better(one: Cell, other: Cell, test: SeedTest) -> bool:
    """Whether one cell is significantly better than another over the seeds that both have.

    The test is two-sided: each side has half of ALPHA. Means that are written with the same digits
    are called equal.
    """
    means = [cell.estimate.mean for cell in (one, other)]
    if None not in means and len({one.metric.format(mean or 0.0) for mean in means}) == 1:
        return False
    values = {v.seed: v.value for v in other.values}
    differences = [v.value - values[v.seed] for v in one.values if v.seed in values]
    p = test.p(differences, 0.0, "less" if one.metric.better == "lower" else "greater")
    return p is not None and 2 * p < ALPHA


def findings(groups: Sequence[MetricGroup], test: SeedTest) -> Iterator[str]:
    """For each panel of a curve: the best at the training length and at the longest length."""
    for group in groups:
        if group.metric.axis != LENGTH or group.metric.better is None:
            continue
        xs = [x for x in group.xs if x is not None]
        for panel, members in group.panels.items():
            lengths = {series.trained_length for series in members}
            trained = lengths.pop() if len(lengths) == 1 else None
            shown = dict.fromkeys(x for x in (trained, xs[-1]) if x in xs)
            parts = filter(None, [_at(group, members, x, trained, test) for x in shown])
            if text := "; ".join(parts):
                yield f"{f'{group.title}, {panel}' if panel else group.title}: {text}."


def _at(
    group: MetricGroup, members: Sequence[Series], x: int, trained: int | None, test: SeedTest
) -> str:
    write = group.metric.format
    every = {series.label: series.cells[x] for series in members if x in series.cells}
    cells = {label: cell for label, cell in every.items() if cell.estimate.mean is not None}
    best = best_mean(list(cells.values()))
    if best is None or best.estimate.mean is None or len(cells) < 2:
        return ""
    where = f"at {x}"
    if trained == x:
        where += ", the training length"
    elif trained:
        where += f", {x / trained:g} × the training length"
    text = write(best.estimate.mean)
    if all(write(cell.estimate.mean or 0.0) == text for cell in cells.values()):
        return f"{where}, all have {text}"
    name = next(label for label, cell in cells.items() if cell is best)
    number = write(best.estimate.mean, best.estimate.half_width)
    alike = [
        label
        for label, cell in cells.items()
        if cell is not best and not is_clearly_better(best, cell, test)
    ]
    if not alike:
        of = "" if len(cells) == len(every) else f" of {len(cells)} with a mean"
        return f"{where}, {name} is best{of} ({number})"
    few = f"not clearly better than {' and '.join(alike)}"
    if best.estimate.n == 1:
        few = "of one seed"
    elif len(alike) > 2:
        few = f"not clearly better than {len(alike)} others"
    return f"{where}, {name} has the best mean ({number}), {few}"


Change = Literal["better", "worse"]
NOT_SETTINGS = ("from", "resources")
"""The fields in which two evaluations of a pair may differ."""


@dataclass(frozen=True)
class BeforeAfter:
    """One metric of two sections of the sweep file: pairs of series, before and after. `before` and
    `after` are the groups that the series are from."""

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
    """The second cell minus the first, over the seeds that both have, or if not `paired`, as the
    difference of their means.

    `change` is None unless Student's t-test over the seeds finds the difference, which it does not
    for a few equal ones, which chance alone gives often (statistics/decision.py).
    """

    estimate: MeanEstimate
    paired: bool
    change: Change | None


def difference_of(first: Cell, second: Cell) -> Difference | None:
    """Return the difference of two cells of one metric; None if one of them has no finite mean."""
    before, after = ({v.seed: v.value for v in cell.values} for cell in (first, second))
    paired = [after[seed] - before[seed] for seed in before if seed in after]
    old, new = first.estimate.mean, second.estimate.mean
    of_means = [] if old is None or new is None else [new - old]
    estimate = estimate_mean(paired or of_means)
    if estimate.mean is None:
        return None
    change: Change | None = None
    p = STUDENT_T.p(paired, 0.0, "greater")
    if first.metric.better is not None and p is not None and 2 * min(p, 1 - p) < ALPHA:
        rises = estimate.mean > 0
        change = "better" if rises == (first.metric.better == "higher") else "worse"
    return Difference(estimate, bool(paired), change)
