"""Which of several cells is the best, and whether the seeds say so, in tables and in words.

A best mean alone says little: of equal methods, one always has it. A cell counts as clearly best
only if it is better than every other in the sweep's test over the seeds that both have, each at
ALPHA. Of two equal methods one is then called best with probability ALPHA at most; of more, more
rarely, since it must be better than all. One seed never suffices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fope_lab.report.results.aggregate import Cell
from fope_lab.report.results.layout import MetricGroup, Series
from fope_lab.stages.metric import LENGTH
from fope_lab.statistics.decision import ALPHA, SeedTest


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
