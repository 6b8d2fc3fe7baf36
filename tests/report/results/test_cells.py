"""Cells: which stages make one, the statistics over their seeds, and the frame of all numbers."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import pandas as pd
import pytest
from report_samples import BASE, finish, typical_numbers, write_plan

from fope_lab.report.results.cells import Cell, build_cells, json_value, read_stages
from fope_lab.report.results.frame import results_frame
from fope_lab.stages.metric import ResultRecord
from fope_lab.store.root import Store
from fope_lab.sweep import Plan


def cells_of(plan: Plan, store: Store) -> dict[tuple[str, str, int | None, str], Cell]:
    """(stage, metric, x, embedding) → cell."""
    cells = build_cells(read_stages(plan.sweep.stages, store))
    found = {(c.section, c.metric.name, c.x, c.axes["pretrain.embedding"]): c for c in cells}
    assert len(found) == len(cells)
    return found


def test_cells_hold_what_stages_measured(tmp_path: Path, store: Store) -> None:
    plan = write_plan(tmp_path)
    finish(plan, store)
    cells = cells_of(plan, store)
    stages = [s for s in plan.sweep.stages if s.section == "perplexity" and s.embedding == "rope"]
    cell = cells["perplexity", "perplexity_by_length", 128, "rope"]
    expected = [typical_numbers(stage, 128) for stage in sorted(stages, key=lambda s: s.seed or 0)]
    assert [value.value for value in cell.values] == expected
    assert [value.seed for value in cell.values] == [0, 1, 2]
    assert {value.key for value in cell.values} == {stage.key for stage in stages}
    assert cell.estimate.mean == pytest.approx(statistics.fmean(expected))
    assert cell.trained_length == 64
    loss = cells["pretrain", "loss", None, "nope"]
    assert loss.values[0].value == pytest.approx(2.4, abs=0.03)  # of result.json, not the last row
    names = {(stage, metric) for stage, metric, _, _ in cells}
    assert names == {
        ("pretrain", "loss"),  # neither learning_rate nor gradient_norm
        ("perplexity", "perplexity_by_length"),
        ("perplexity", "loss_by_length"),
        ("perplexity", "bits_per_byte_by_length"),
        ("passkey", "passkey_accuracy_by_length"),
    }
    assert len(cells) == 4 * (1 + 4 + 4 + 4 + 3)


def test_missing_stages_leave_cells_that_say_so(tmp_path: Path, store: Store) -> None:
    plan = write_plan(tmp_path)
    finish(
        plan,
        store,
        skip={f"pretrain[embedding=nope,seed={seed}]" for seed in range(3)},
        fail={"perplexity[embedding=rope,seed=1]": "out of memory"},
    )
    cells = cells_of(plan, store)
    partly = cells["perplexity", "perplexity_by_length", 64, "rope"]
    assert partly.estimate.n == 2
    assert [(m.seed, m.status, m.reason) for m in partly.missing] == [
        (1, "failed", "out of memory")
    ]
    wholly = cells["passkey", "passkey_accuracy_by_length", 64, "nope"]
    assert wholly.estimate.n == 0
    assert wholly.estimate.mean is None
    assert [m.status for m in wholly.missing] == ["not started"] * 3
    assert "waits for pretrain[embedding=nope,seed=0]" in wholly.missing[0].reason
    assert ("passkey", "passkey_accuracy_by_length", 256, "nope") not in cells  # never asked for


def test_descendants_of_a_failure_are_blocked(tmp_path: Path, store: Store) -> None:
    plan = write_plan(tmp_path)
    finish(plan, store, fail={"pretrain[embedding=rope,seed=0]": "loss is nan\nmore"})
    states = {
        r.stage.label: (r.state.status, r.state.reason)
        for r in read_stages(plan.sweep.stages, store)
    }
    assert states["pretrain[embedding=rope,seed=0]"] == ("failed", "loss is nan")
    blocked = ("blocked", "pretrain[embedding=rope,seed=0] failed")
    assert states["passkey[embedding=rope,seed=0]"] == blocked
    assert states["passkey[embedding=rope,seed=1]"] == ("done", "")


def test_an_interrupted_stage_gives_no_value(tmp_path: Path, store: Store) -> None:
    plan = write_plan(tmp_path, {"seeds": [0]})
    training = next(s for s in plan.sweep.stages if s.label == "pretrain[embedding=rope,seed=0]")
    with store.folder(training.kind, training.key).begin("test", {}) as attempt:
        attempt.writer.log(10, {"loss": 4.0})
        attempt.writer.save_checkpoint(10, lambda folder: (folder / "x").touch())
        attempt.writer.progress(10, 100)
    finish(plan, store, skip={training.label})
    reading = next(r for r in read_stages(plan.sweep.stages, store) if r.stage.key == training.key)
    assert (reading.state.status, reading.state.reason) == (
        "interrupted",
        "stopped at step 10 of 100",
    )
    assert [row.values for row in reading.rows] == [{"loss": 4.0}]
    assert cells_of(plan, store)["pretrain", "loss", None, "rope"].values == ()


def test_trained_length_is_that_of_the_last_training(tmp_path: Path, store: Store) -> None:
    train = {"tokens": 12800, "batch_tokens": 1280, "learning_rate": 1e-4}
    data = {"corpus": "python-docs", "length": 256}
    extended = {
        "extend": {"kind": "extend", "from": "pretrain", "data": data, "train": train},
        "far": {**BASE["stages"]["perplexity"], "from": "extend"},
    }
    plan = write_plan(tmp_path, {"seeds": [0], "stages": {**BASE["stages"], **extended}})
    lengths = {r.stage.section: r.trained_length for r in read_stages(plan.sweep.stages, store)}
    assert (lengths["pretrain"], lengths["perplexity"]) == (64, 64)
    assert (lengths["extend"], lengths["far"]) == (256, 256)
    assert lengths["prepare-data"] is None


def test_every_cell_has_a_key_of_its_own(tmp_path: Path, store: Store) -> None:
    grid = {"pretrain.embedding": ["rope", "nope"], "perplexity.tokens": [10000, 20000]}
    plan = write_plan(tmp_path, {"grid": grid})
    finish(plan, store, skip={"pretrain[embedding=nope,seed=0]"})
    cells = build_cells(read_stages(plan.sweep.stages, store))
    assert len({cell.key for cell in cells}) == len(cells)
    for cell in cells:
        same = {other.series for other in cells if set(other.keys) == set(cell.keys)}
        assert same == {cell.series}


def test_json_value_spells_what_json_cannot_hold() -> None:
    value = {"a": (1.5, math.nan), "b": {"c": -math.inf}}
    assert json_value(value) == {"a": [1.5, "NaN"], "b": {"c": "-Infinity"}}


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
