"""Which of several cells is the best, and whether the seeds say so.

A best mean alone says little: of equal methods, one always has it. A cell counts as clearly best
only if it is better than every other in the sweep's test over the seeds that both have
(statistics/t_test.py), each at ALPHA. Of two equal methods one is then called best with probability
ALPHA at most; of more, more rarely, since it must be better than all. One seed never suffices.
"""

from __future__ import annotations

from collections.abc import Sequence

from fope_lab.report.results.aggregate import Cell
from fope_lab.statistics.t_test import ALPHA, SeedTest


def meaning(test: SeedTest) -> str:
    """What a table says of the entry that it marks."""
    return (
        f"better than every other row of its column in a {test.name} over the seeds"
        f" (p < {ALPHA:g} each)"
    )


def clearly_best(cells: Sequence[Cell], test: SeedTest) -> Cell | None:
    """The cell that is better than every other by the test, or None.

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
    best = choose(mean for mean, _ in means)
    return next(cell for mean, cell in means if mean == best)


def is_clearly_better(one: Cell, other: Cell, test: SeedTest) -> bool:
    """Whether one cell is significantly better than another over the seeds that both have.

    The test is two-sided: each side has half of ALPHA. Means that are written with the same digits
    are called equal.
    """
    texts = [one.metric.format(cell.estimate.mean or 0.0) for cell in (one, other)]
    if None not in (one.estimate.mean, other.estimate.mean) and texts[0] == texts[1]:
        return False
    values = {v.seed: v.value for v in other.values}
    differences = [v.value - values[v.seed] for v in one.values if v.seed in values]
    p = test.p(differences, 0.0, "less" if one.metric.better == "lower" else "greater")
    return p is not None and 2 * p < ALPHA
