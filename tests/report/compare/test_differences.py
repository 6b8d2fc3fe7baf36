"""What is marked as the best, and evaluations of a model before and after it was changed."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from report_samples import BASE, printed, report_of, typical_numbers

from fope_lab.report import Report
from fope_lab.report.compare.differences import best_mean, clearly_best, difference_of
from fope_lab.report.render.json import report_json
from fope_lab.report.render.tables import report_tables
from fope_lab.report.results.cells import Cell, SeedValue
from fope_lab.stages.metric import Better, Measurement, Metric
from fope_lab.statistics.decision import STUDENT_T, SeedTest
from fope_lab.statistics.intervals import estimate_mean
from fope_lab.statistics.sequential import SequentialT
from fope_lab.store.root import Store
from fope_lab.sweep.graph import Stage


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


EXTEND = {
    "kind": "extend",
    "from": "pretrain",
    "data": {"corpus": "python-docs", "length": 128},
    "train": {"tokens": 6400, "batch_tokens": 640, "learning_rate": 1e-3},
}
PERPLEXITY = BASE["stages"]["perplexity"]


def better(stage: Stage, length: int | None) -> float:
    """Extending lowers a perplexity by a tenth."""
    value = typical_numbers(stage, length)
    return value * 0.9 if stage.section == "extended" and length else value


def extended_report(folder: Path, store: Store, extended: dict[str, Any], **changes: Any) -> Report:
    stages = {"pretrain": BASE["stages"]["pretrain"], "extend": EXTEND}
    stages |= {"perplexity": PERPLEXITY, "extended": {**PERPLEXITY, **extended}}
    return report_of(folder, store, {"stages": stages, **changes}, numbers=better)


def test_before_and_after_stand_in_one_table(tmp_path: Path, store: Store) -> None:
    report = extended_report(tmp_path, store, {"from": "extend"})
    [pair] = report.before_after
    assert (pair.before.section, pair.after.section) == ("perplexity", "extended")
    assert [(a.label, b.label) for a, b in pair.pairs] == [
        (name, name) for name in ("nope", "alibi", "rope", "fope")
    ]
    table = report_tables(report)[-1]
    assert table.title == "Perplexity before and after: perplexity and extended"
    assert [row.labels for row in table.rows[:3]] == [
        ("nope", "perplexity"),
        ("nope", "extended"),
        ("nope", "difference"),
    ]
    assert [column.label for column in table.columns] == ["32", "64", "128", "256"]
    assert all(entry.text.endswith(" better") for entry in table.rows[2].entries)
    assert all(entry.text.startswith("−") for entry in table.rows[2].entries)
    assert table.title in printed(report)
    told = json.loads(json.dumps(report_json(report)))["before_after"]
    assert len(told) == 4 * 4
    [nope] = [e for e in told if e["x"] == 64 and "nope" in str(e["after"]["axes"])]
    assert nope["difference"]["change"] == "better"
    assert nope["difference"]["estimate"]["mean"] == pytest.approx(-1.09, abs=0.02)


def test_an_embedding_that_is_exchanged_is_a_change(tmp_path: Path, store: Store) -> None:
    alibi = {"from": "pretrain", "embedding": "alibi"}
    report = extended_report(tmp_path, store, alibi, grid={"pretrain.embedding": ["nope", "rope"]})
    [pair] = report.before_after
    assert (pair.before.section, pair.after.section) == ("perplexity", "extended")
    assert [a.label for a, _ in pair.pairs] == ["nope", "rope"]


@pytest.mark.parametrize(
    "other",
    [
        {"from": "extend", "lengths": [32, 64]},
        {"from": "extend", "tokens": 10000},
        {"from": "pretrain", "tokens": 10000},
    ],
    ids=["lengths", "tokens", "the same model"],
)
def test_other_settings_or_the_same_model_are_no_pair(
    tmp_path: Path, store: Store, other: dict[str, Any]
) -> None:
    assert extended_report(tmp_path, store, other).before_after == ()


def test_one_section_over_both_models_needs_no_second_table(tmp_path: Path, store: Store) -> None:
    stages = {"pretrain": BASE["stages"]["pretrain"], "extend": EXTEND, "perplexity": PERPLEXITY}
    grid = {"perplexity.from": ["pretrain", "extend"]}
    changes = {"stages": stages, "seeds": [0], "grid": grid}
    assert report_of(tmp_path, store, changes).before_after == ()


def cells_of(folder: Path, values: dict[int, float]) -> Cell:
    """A cell with chosen values by seed."""
    changes = {"seeds": list(values), "grid": {"pretrain.embedding": ["rope"]}}

    def numbers(stage: Stage, length: int | None) -> float:
        return values[stage.seed or 0] if length else 1.0

    report = report_of(folder, changes=changes, numbers=numbers)
    return next(c for c in report.cells if c.metric.name == "perplexity_by_length")


def test_the_interval_is_paired_where_seeds_are(tmp_path: Path) -> None:
    first = cells_of(tmp_path / "a", {0: 10.0, 1: 20.0, 2: 30.0})
    second = cells_of(tmp_path / "b", {0: 9.0, 1: 18.9, 2: 29.1})
    paired = difference_of(first, second)
    assert paired is not None
    assert paired.paired
    assert (paired.estimate.n, paired.change) == (3, "better")
    assert paired.estimate.mean == pytest.approx(-1.0)
    # Student's t over −1, −1.1 and −0.9: s = 0.1, t(0.975, 2) = 4.30265
    assert paired.estimate.half_width == pytest.approx(4.30265 * 0.1 / 3**0.5, rel=1e-4)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({0: 10.0}, {0: 9.0}),
        ({0: 10.0, 1: 11.0}, {0: 9.0, 1: 10.0}),
        ({0: 10.0, 1: 11.0, 2: 12.0}, {5: 9.0, 6: 11.0}),
    ],
)
def test_too_few_seeds_decide_nothing(
    tmp_path: Path, first: dict[int, float], second: dict[int, float]
) -> None:
    found = difference_of(cells_of(tmp_path / "a", first), cells_of(tmp_path / "b", second))
    assert found is not None
    assert found.estimate.mean == pytest.approx(-1.0)
    assert (found.paired, found.change) == (0 in second, None)
