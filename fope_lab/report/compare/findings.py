"""The best results of a sweep in words, as far as the seeds say which they are."""

from __future__ import annotations

from collections.abc import Sequence

from fope_lab.report.compare.best import best_mean, is_clearly_better
from fope_lab.report.results.layout import MetricGroup, Series
from fope_lab.stages.metric import LENGTH
from fope_lab.statistics.t_test import SeedTest


def findings(groups: Sequence[MetricGroup], test: SeedTest) -> tuple[str, ...]:
    """For each panel of a curve: the best at the training length and at the longest length."""
    return tuple(text for group in groups for text in _of_group(group, test))


def _of_group(group: MetricGroup, test: SeedTest) -> list[str]:
    if group.metric.axis != LENGTH or group.metric.better is None:
        return []
    found = []
    for panel, members in group.panels.items():
        xs = [x for x in group.xs if x is not None]
        trained_lengths = {series.trained_length for series in members}
        trained_length = trained_lengths.pop() if len(trained_lengths) == 1 else None
        shown = [x for x in (trained_length, xs[-1]) if x in xs]
        parts = [_at(group, members, x, trained_length, test) for x in dict.fromkeys(shown)]
        if parts := [part for part in parts if part]:
            name = f"{group.title}, {panel}" if panel else group.title
            found.append(f"{name}: {'; '.join(parts)}.")
    return found


def _at(
    group: MetricGroup,
    members: Sequence[Series],
    x: int,
    trained_length: int | None,
    test: SeedTest,
) -> str:
    every = {series.label: series.cells[x] for series in members if x in series.cells}
    cells = {label: cell for label, cell in every.items() if cell.estimate.mean is not None}
    best = best_mean(list(cells.values()))
    if best is None or best.estimate.mean is None or len(cells) < 2:
        return ""
    where = f"at {x}"
    if trained_length == x:
        where += ", the training length"
    elif trained_length:
        where += f", {x / trained_length:g} × the training length"
    text = group.metric.format(best.estimate.mean)
    if all(group.metric.format(cell.estimate.mean or 0.0) == text for cell in cells.values()):
        return f"{where}, all have {text}"
    name = next(label for label, cell in cells.items() if cell is best)
    number = group.metric.format(best.estimate.mean, best.estimate.half_width)
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
