"""What is marked as the best: the better of equal methods is, in a twentieth of cases at most."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import scipy.stats

from fope_lab.report.compare.best import best_mean, clearly_best, is_clearly_better
from fope_lab.report.results.aggregate import Cell, SeedValue
from fope_lab.stages.metric import Better, Metric
from fope_lab.stages.result import Measurement
from fope_lab.statistics.decision import STUDENT_T, SeedTest
from fope_lab.statistics.intervals import estimate_mean
from fope_lab.statistics.sequential import SequentialT


def cell(values: Sequence[float], better: Better | None = "lower", first: int = 0) -> Cell:
    metric = Metric(name="loss", short_name="loss", better=better, unit="nats")
    return Cell(
        section="pretrain",
        metric=metric,
        x=None,
        axes={},
        estimate=estimate_mean(values),
        values=tuple(
            SeedValue(seed, Measurement(name="loss", value=value), f"key{seed}{value}")
            for seed, value in enumerate(values, first)
        ),
        missing=(),
        trained_length=None,
        embedding=None,
    )


def test_the_best_differs_from_every_other() -> None:
    best, close, far = cell([1.0, 2.0, 3.1]), cell([1.3, 2.1, 3.1]), cell([5.0, 6.1, 7.0])
    assert clearly_best([far, best], STUDENT_T) is best
    assert clearly_best([far, best, close], STUDENT_T) is None
    assert best_mean([far, close, best]) is best
    higher = [cell([1.0, 2.0, 3.1], "higher"), cell([5.0, 6.1, 7.0], "higher")]
    assert clearly_best(higher, STUDENT_T) is higher[1]


@pytest.mark.parametrize(
    "cells",
    [
        [cell([1.0]), cell([9.0])],
        [cell([1.0, 1.0]), cell([2.0, 2.0])],
        [cell([1.0, 2.0, 3.0])],
        [cell([1.0, 2.0, 3.1]), cell([8.0, 9.0, 10.0]), cell([])],
        [cell([1.0, 2.0, 3.0], None), cell([8.0, 9.1, 10.0], None)],
        [cell([1.0, 2.0, 3.1]), cell([5.0, 6.0, math.inf])],
        [cell([1.0, 2.0, 3.1]), cell([8.0, 9.0, 10.0], first=3)],
        [cell([1.0, 2.0, 3.0]), cell([1.0001, 2.0002, 3.0001])],
    ],
    ids=["one seed", "two equal", "alone", "missing", "no end", "infinite", "unpaired", "digits"],
)
def test_nothing_is_marked_without_evidence(cells: list[Cell]) -> None:
    assert clearly_best(cells, STUDENT_T) is None


def test_it_is_the_paired_t_test_of_scipy() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        one, other = (rng.normal(shift, 1, 4).tolist() for shift in (0, 1.5))
        p = scipy.stats.ttest_rel(one, other).pvalue
        better = bool(p < 0.05) and sum(one) < sum(other)
        assert is_clearly_better(cell(one), cell(other), STUDENT_T) is better


@pytest.mark.parametrize("methods", [2, 3, 5])
def test_of_equal_methods_one_is_marked_rarely(methods: int) -> None:
    """A seed moves all methods alike, which the pairs remove."""
    rng, repeats = np.random.default_rng(methods), 600
    marked = 0
    for _ in range(repeats):
        seeds = rng.standard_normal(5)
        columns = (seeds + 0.3 * rng.standard_normal(5) for _ in range(methods))
        marked += clearly_best([cell(values.tolist()) for values in columns], STUDENT_T) is not None
    error = math.sqrt(0.05 * 0.95 / repeats)
    assert marked / repeats < 0.05 + 3 * error
    if methods == 2:
        assert marked / repeats > 0.05 - 3 * error


@pytest.mark.parametrize("test", [STUDENT_T, SequentialT(3)])
def test_the_better_end_may_be_either(test: SeedTest) -> None:
    one, other = [1.0, 2.0, 3.1, 2.5, 1.7], [5.0, 6.1, 7.0, 6.2, 5.9]
    low, high = [cell(one), cell(other)], [cell(one, "higher"), cell(other, "higher")]
    assert clearly_best(low, test) is low[0]
    assert clearly_best(high, test) is high[1]


def test_a_cell_that_an_early_look_found_worse_is_not_marked() -> None:
    """Its mean became the best after that look."""
    found = [-1.0, -1.01, -1.02, 2.0, 3.0, 4.0, 3.0, 4.0, 5.0, 4.0]
    one, other = cell(found, "higher"), cell([0.0] * len(found), "higher")
    assert best_mean([one, other]) is one
    assert clearly_best([one, other], SequentialT(3)) is None


def test_a_cell_that_is_worse_under_the_common_seeds_is_not_marked() -> None:
    one = cell([1.0, 1.1, 0.9, 9.0, 9.1], "higher")
    other = cell([2.0, 2.2, 1.9], "higher")
    assert best_mean([one, other]) is one
    assert clearly_best([one, other], STUDENT_T) is None


def test_seeds_that_are_added_until_a_mark_appears_bring_it_rarely() -> None:
    """Student's t would mark one of two equal methods in a tenth of cases or more."""
    rng, repeats = np.random.default_rng(3), 200
    marked = {STUDENT_T: 0, SequentialT(3): 0}
    for _ in range(repeats):
        columns = rng.standard_normal((2, 8)).tolist()
        for test in marked:
            marked[test] += any(
                clearly_best([cell(values[:n]) for values in columns], test) is not None
                for n in range(3, 9)
            )
    assert marked[SequentialT(3)] / repeats < 0.05 + 3 * math.sqrt(0.05 * 0.95 / repeats)
    assert marked[STUDENT_T] / repeats > 0.1
