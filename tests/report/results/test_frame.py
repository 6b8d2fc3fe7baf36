"""The numbers of a sweep as a pandas frame, beside the report's own cells."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest
from report_samples import BASE, finish, make_report, typical_numbers, write_plan

from fope_lab.report.results.frame import results_frame
from fope_lab.report.results.stage_results import read_stages
from fope_lab.stages.result import ResultRecord
from fope_lab.store import Store
from fope_lab.sweep import Plan

RATES = [1e-3, 2e-3]


def frame_of(plan: Plan, store: Store) -> pd.DataFrame:
    return results_frame(read_stages(plan.sweep.stages, store))


def test_every_number_has_a_row_with_what_it_belongs_to(tmp_path: Path, store: Store) -> None:
    plan = write_plan(tmp_path)
    finish(plan, store)
    frame = frame_of(plan, store)
    stages = [s for s in plan.sweep.stages if s.kind in ("perplexity", "passkey")]
    expected = {(s.key, length) for s in stages for length in s.spec.lengths}
    measured = frame[frame.metric.isin(["perplexity_by_length", "passkey_accuracy_by_length"])]
    assert {(row.key, row.x) for row in measured.itertuples()} == expected
    for stage in stages:
        rows = measured[measured.key == stage.key]
        assert set(rows.stage) == {stage.section}
        assert set(rows.embedding) == {stage.embedding} == set(rows["pretrain.embedding"])
        assert set(rows.seed) == {stage.seed}
        assert set(rows.trained_length) == {64}
        for row in rows.itertuples():
            assert row.value == pytest.approx(typical_numbers(stage, row.x), rel=1e-12)


def test_the_means_are_those_of_the_report(tmp_path: Path, store: Store) -> None:
    plan = write_plan(tmp_path)
    finish(plan, store)
    means = frame_of(plan, store).groupby(["stage", "metric", "embedding", "x"]).value.mean()
    cells = [cell for cell in make_report(plan, store).cells if cell.x is not None]
    assert len(means) == len(cells)
    for cell in cells:
        mean = means[cell.section, cell.metric.name, cell.embedding, cell.x]
        assert mean == pytest.approx(cell.estimate.mean, rel=1e-12)


def test_an_embedding_with_options_is_a_text_and_a_number_stays_one(
    tmp_path: Path, store: Store
) -> None:
    embeddings = ["rope", {"type": "p-rope", "p": 0.25}]
    grid = {"pretrain.embedding": embeddings, "pretrain.train.learning_rate": RATES}
    plan = write_plan(tmp_path, {"grid": grid, "seeds": [0]})
    finish(plan, store)
    frame = frame_of(plan, store)
    assert set(frame["pretrain.embedding"]) == {"rope", "p-rope(p=0.25)"}
    assert set(frame["pretrain.train.learning_rate"]) == set(RATES)


def test_a_stage_without_results_is_told(tmp_path: Path, store: Store) -> None:
    plan = write_plan(tmp_path, {"seeds": [0], "grid": {"pretrain.embedding": ["rope", "nope"]}})
    failed = "pretrain[embedding=rope,seed=0]"
    finish(plan, store, fail={failed: "out of memory"})
    frame = frame_of(plan, store)
    unfinished = frame.attrs["unfinished"]
    assert "out of memory" in unfinished[failed]
    without = [s for s in plan.sweep.stages if s.embedding == "rope"]
    assert set(unfinished) == {s.label for s in without}
    assert set(frame.embedding) == {"nope"}


def test_an_empty_store_gives_an_empty_frame_that_says_so(tmp_path: Path, store: Store) -> None:
    plan = write_plan(tmp_path)
    frame = frame_of(plan, store)
    assert frame.empty
    assert {"stage", "metric", "x", "value", "seed", "pretrain.embedding", "key"} <= {
        *frame.columns
    }
    assert len(frame.attrs["unfinished"]) == len(plan.sweep.stages)


def test_the_numbers_beside_a_figure_are_rows_too(tmp_path: Path, store: Store) -> None:
    stages = {**BASE["stages"], "decay": {"kind": "analysis", "analysis": "decay"}}
    plan = write_plan(tmp_path, {"stages": stages, "seeds": [0]})
    stage = next(s for s in plan.sweep.stages if s.kind == "analysis")
    with store.folder(stage.kind, stage.key).begin("test", {"config": stage.config}) as attempt:
        attempt.finish(ResultRecord(numbers={"crossing": 12.5}).as_json())
    frame = frame_of(plan, store)
    assert list(frame[frame.key == stage.key].metric) == ["crossing"]
    assert list(frame[frame.key == stage.key].value) == [12.5]
    assert frame.x.isna().all()


def test_unknown_numbers_are_missing(tmp_path: Path, store: Store) -> None:
    plan = write_plan(tmp_path, {"seeds": [0], "grid": {"pretrain.embedding": ["rope"]}})
    finish(plan, store, lambda stage, length: math.inf if length == 128 else 2.0)
    frame = frame_of(plan, store)
    assert frame[frame.metric == "perplexity_by_length"].stderr.isna().all()
    assert math.inf in set(frame.value)
