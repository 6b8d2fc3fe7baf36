"""What a sweep cost: time and tokens as recorded, energy as estimated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from report_samples import BASE, finish, make_report, report_of, write_plan

from fope_lab.report import Report
from fope_lab.report.render.documents import render_html
from fope_lab.report.render.json import render_json
from fope_lab.report.results.summary import WATTS_PER_CORE, Cost
from fope_lab.stages.metric import Measurement, ResultRecord
from fope_lab.store.root import Store
from fope_lab.sweep import Plan

ONE: dict[str, Any] = {"seeds": [0], "grid": {"pretrain.embedding": ["rope"]}}


def taking(plan: Plan, store: Store, seconds: float, device: str) -> None:
    """Let every finished stage of a plan have taken `seconds` on a device."""
    for stage in plan.sweep.stages:
        path = store.folder(stage.kind, stage.key).path / "DONE"
        if path.exists():
            done = json.loads(path.read_text())
            path.write_text(json.dumps(done | {"seconds": seconds, "ran": {"device": device}}))


def report_taking(
    folder: Path, store: Store, changes: dict[str, Any], seconds: float, device: str
) -> tuple[Report, int]:
    """A report, every stage of which took `seconds` on a device; and the number of stages."""
    plan = write_plan(folder, changes)
    finish(plan, store)
    taking(plan, store, seconds, device)
    return make_report(plan, store), len(plan.sweep.stages)


def test_time_and_tokens_add_up(tmp_path: Path, store: Store) -> None:
    changes = {"seeds": [0, 1], "grid": {"pretrain.embedding": ["rope", "nope"]}}
    report, stages = report_taking(tmp_path, store, changes, 30.0, "cpu")
    cost = report.summary.cost
    assert cost.stages == stages
    assert cost.seconds == cost.core_seconds == 30.0 * stages  # one core each
    assert cost.gpu_seconds == 0
    assert cost.tokens == 4 * 64_000
    assert cost.joules == WATTS_PER_CORE * cost.core_seconds


def test_what_is_reserved_counts(tmp_path: Path, store: Store) -> None:
    pretrain = {**BASE["stages"]["pretrain"], "resources": {"cpus": 3, "gpus": 2}}
    changes = {**ONE, "stages": {**BASE["stages"], "pretrain": pretrain}}
    card = "NVIDIA H100 80GB HBM3"
    report, stages = report_taking(tmp_path, store, changes, 10.0, card)
    cost, others = report.summary.cost, stages - 1
    assert cost.gpu_seconds == 2 * 10.0
    assert cost.core_seconds == 10.0 * (others + 2 * 3)  # two workers of three cores
    assert cost.joules == pytest.approx(WATTS_PER_CORE * cost.core_seconds + 20.0 * 700)
    assert "each GPU's board power" in cost.energy


def test_an_unknown_card_has_an_unknown_energy(tmp_path: Path, store: Store) -> None:
    pretrain = {**BASE["stages"]["pretrain"], "resources": {"gpus": 1}}
    changes = {**ONE, "stages": {**BASE["stages"], "pretrain": pretrain}}
    cost = report_taking(tmp_path, store, changes, 10.0, "Abacus 9000")[0].summary.cost
    assert cost.joules is None
    assert "unknown" in cost.energy


def test_only_finished_stages_cost(tmp_path: Path, store: Store) -> None:
    plan = write_plan(tmp_path, ONE)
    assert make_report(plan, store).summary.cost == Cost(0, 0.0, 0.0, 0.0, 0, 0.0)
    finish(plan, store, fail={"pretrain[embedding=rope,seed=0]": "out of memory"})
    assert make_report(plan, store).summary.cost.tokens == 0


def test_attempts_before_the_last_cost_as_well(tmp_path: Path, store: Store) -> None:
    """Two attempts that took 25 s and came to nothing, or not to the end, then one of 10 s."""
    plan = write_plan(tmp_path, ONE)
    training = next(stage for stage in plan.sweep.stages if stage.spec.trains)
    folder = store.folder(training.kind, training.key)
    for _ in range(2):
        folder.begin("test", {}).release()
    finish(plan, store)
    taking(plan, store, 10.0, "cpu")
    done = json.loads(folder.paths.done.read_text())
    assert done["earlier"]["attempts"] == 2
    earlier = {"attempts": 2, "seconds": 25.0}
    folder.paths.done.write_text(json.dumps(done | {"earlier": earlier}))
    report = make_report(plan, store)
    cost, stages = report.summary.cost, len(plan.sweep.stages)
    assert cost.seconds == cost.core_seconds == 10.0 * stages + 25.0
    assert "<td>35 s over 3 attempts</td>" in render_html(report)
    told = {one["key"]: one for one in json.loads(render_json(report))["stages"]}
    times = {key: (one["seconds"], one["attempts"]) for key, one in told.items()}
    others = {stage.key: (10.0, 1) for stage in plan.sweep.stages}
    assert times == others | {training.key: (35.0, 3)}


def test_the_page_and_the_json_say_it(tmp_path: Path, store: Store) -> None:
    report, stages = report_taking(tmp_path, store, ONE, 3600.0, "cpu")
    page = render_html(report)
    assert f"{stages} core-hours" in page
    assert "64k tokens of training" in page
    assert "estimated, not measured" in page
    assert json.loads(render_json(report))["cost"]["tokens"] == 64_000


def test_the_time_of_trainings_is_divided(tmp_path: Path, store: Store) -> None:
    plan = write_plan(tmp_path, ONE)
    [training] = (stage for stage in plan.sweep.stages if stage.spec.trains)
    recorded = {
        "seconds": 200.0,
        "tokens_per_second": 51_234.0,
        "flops_utilisation": 0.412,
        "data_seconds": 0.1,
        "checkpoint_seconds": 3.0,
        "validation_seconds": 50.0,
    }
    with store.folder(training.kind, training.key).begin("test", {}) as attempt:
        loss = Measurement(name="loss", value=2.0)
        attempt.finish(ResultRecord(metrics=(loss,), recorded=recorded).as_json())
    finish(plan, store)
    report = make_report(plan, store)
    page = render_html(report)
    words = "less than 0.1 % waiting for data, 1.5 % writing checkpoints, 25 % validations"
    assert f"Of the time of 1 training: {words}; the rest" in page
    assert "<td>51.2k (41% MFU)</td>" in page
    told = json.loads(render_json(report))
    assert told["time_lost"]["shares"] == {"data": 5e-4, "checkpoints": 0.015, "validations": 0.25}
    [row] = (one for one in told["stages"] if one["key"] == training.key)
    assert (row["tokens_per_second"], row["flops_utilisation"]) == (51_234.0, 0.412)


def test_results_without_these_seconds_do_not_divide_it(tmp_path: Path, store: Store) -> None:
    report = report_of(tmp_path, store, ONE)
    assert report.summary.time_lost is None
    assert json.loads(render_json(report))["time_lost"] is None
    assert "Of the time of" not in render_html(report)
