"""Which stages `--only` and `--retry-failed` leave of a plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest
from sweep_files import BASE, changed, load

from fope_lab.config.problems import SweepError
from fope_lab.store import StageState, Status
from fope_lab.sweep import Plan, plan
from fope_lab.sweep.stage_filter import every_stage, failed, only

SWEEP = changed(BASE, {"grid": {"pretrain.embedding": ["alibi", "rope"]}})
ALIBI = "[embedding=alibi,seed=0]"


@pytest.fixture
def planned(tmp_path: Path) -> Plan:
    return plan(load(tmp_path, SWEEP))


def with_states(planned: Plan, states: Mapping[str, Status]) -> Plan:
    """The plan, in which stages of these labels have these statuses."""
    by_label = {stage.label: stage.key for stage in planned.sweep.stages}
    new = {by_label[label]: StageState(status) for label, status in states.items()}
    return dataclasses.replace(planned, states={**planned.states, **new})


def user_facing(plans: list[Plan]) -> list[str]:
    """The labels of the stages left, without those that prepare data."""
    return [
        stage.label
        for one in plans
        for stage in one.sweep.stages
        if stage.section in BASE["stages"]
    ]


def test_a_stage_and_what_it_needs(planned: Plan) -> None:
    [part] = only([f"passkey{ALIBI}"])([planned])
    assert user_facing([part]) == [f"{name}{ALIBI}" for name in ("pretrain", "extend", "passkey")]
    assert {stage.kind for stage in part.sweep.stages} == {
        "prepare-data", "pretrain", "extend", "passkey"
    }  # fmt: skip
    assert part.states.keys() == {stage.key for stage in part.sweep.stages}
    order = [stage.key for stage in part.sweep.stages]
    for stage in part.sweep.stages:
        assert all(order.index(key) < order.index(stage.key) for key in stage.parents.values())


def test_several_stages_of_several_sweeps(tmp_path: Path, planned: Plan) -> None:
    other = {**BASE, "name": "other", "stages": {"first": BASE["stages"]["pretrain"]}}
    plans = [planned, plan(load(tmp_path / "other", other))]
    assert user_facing(only([f"pretrain{ALIBI}"])(plans)) == [f"pretrain{ALIBI}"]
    left = only(["perplexity", "first"])(plans)
    assert len(left) == 2
    assert len(user_facing(left)) == 4
    assert every_stage(plans) is plans


def test_a_finished_stage_needs_no_stage_that_is_unfinished(planned: Plan) -> None:
    states = {f"extend{ALIBI}": Status.DONE}
    [part] = only([f"passkey{ALIBI}"])([with_states(planned, states)])
    assert user_facing([part]) == [f"extend{ALIBI}", f"passkey{ALIBI}"]
    [part] = only([f"extend{ALIBI}"])([with_states(planned, states)])
    assert user_facing([part]) == [f"extend{ALIBI}"]


def test_a_misspelt_stage_is_an_error(planned: Plan) -> None:
    with pytest.raises(SweepError) as caught:
        only(["pretrain", "paskey"])([planned])
    message = "--only: unknown stage or key 'paskey'; did you mean 'passkey'? (allowed: "
    assert str(caught.value).startswith(message)


def test_what_failed_what_waits_for_it_and_what_these_need(planned: Plan) -> None:
    states = {f"pretrain{ALIBI}": Status.DONE, f"extend{ALIBI}": Status.FAILED}
    [part] = failed([with_states(planned, states)])
    assert user_facing([part]) == [
        f"{name}{ALIBI}" for name in ("pretrain", "extend", "finetune", "passkey")
    ]
    assert part.states[part.sweep.stages[-1].key].status is Status.NOT_STARTED


def test_nothing_is_left_if_nothing_failed(planned: Plan) -> None:
    states = {f"pretrain{ALIBI}": Status.INTERRUPTED, f"extend{ALIBI}": Status.DAMAGED}
    [part] = failed([with_states(planned, states)])
    assert part.sweep.stages == ()
