"""A command names stages by their section, their label or their key, and errors say what exists."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from sweep_files import BASE, changed, load

from fope_lab.config.problems import SweepError
from fope_lab.store.attempts import LeaseHeldError
from fope_lab.store.folder import StageFolder
from fope_lab.store.state import StageState, Status
from fope_lab.sweep import Plan, plan
from fope_lab.sweep.stage_filter import (
    every_stage,
    failed,
    find_stage,
    find_stages,
    only,
    stages_to_redo,
)


@dataclass(frozen=True)
class Named:
    key: str
    section: str
    label: str


ROPE = Named("aaaaaa11" + "0" * 24, "pretrain", "pretrain[embedding=rope]")
NOPE = Named("aaaaaa22" + "0" * 24, "pretrain", "pretrain[embedding=nope]")
PASSKEY = Named("bbbbbb33" + "0" * 24, "passkey", "passkey[embedding=rope]")
STAGES = [ROPE, NOPE, PASSKEY]


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("pretrain", [ROPE, NOPE]),
        ("pretrain[embedding=nope]", [NOPE]),
        (NOPE.key, [NOPE]),
        ("aaaaaa2", [NOPE]),
        ("bbbbbb", [PASSKEY]),
    ],
)
def test_a_section_a_label_and_a_key(name: str, stages: list[Named]) -> None:
    assert find_stages(STAGES, [name]) == stages


def test_a_label_without_some_of_its_fields_means_all_that_have_the_others() -> None:
    labels = ["a[x=1,y=1]", "a[x=1,y=2]", "a[x=2,y=1]", "a[x=1]", "b[x=1,y=1]", "s[a[x=2,y=1]]"]
    stages = [Named(f"{i:032x}", name[0], name) for i, name in enumerate(labels)]
    assert find_stages(stages, ["a[y=1]"]) == [stages[0], stages[2]]
    assert find_stages(stages, ["a[y=2,x=1]"]) == [stages[1]]
    assert find_stages(stages, ["a[x=1]"]) == [stages[3]]  # this one's whole label
    assert find_stages(stages, ["s[a[x=2]]"]) == [stages[5]]
    with pytest.raises(SweepError, match=r"'a.y=1.' means 2 stages: a.x=1,y=1. "):
        find_stage(stages, "a[y=1]")
    for wrong in ("a[y=3]", "a[y]", "a[]", "a[z=1,y=1]"):
        with pytest.raises(SweepError, match="unknown stage or key"):
            find_stages(stages, [wrong])


def test_several_names_give_each_stage_once_in_the_order_of_the_sweep() -> None:
    assert find_stages(STAGES, ["passkey", "pretrain", "aaaaaa11"]) == STAGES
    assert find_stages([*STAGES, ROPE], ["pretrain"]) == [ROPE, NOPE]


def test_a_section_that_looks_like_a_key_is_a_section() -> None:
    odd = Named("c" * 32, "bbbbbb33", "bbbbbb33")
    assert find_stages([*STAGES, odd], ["bbbbbb33"]) == [odd]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pretrian",
         "--only: unknown stage or key 'pretrian'; did you mean 'pretrain'?"
         " (allowed: pretrain, passkey)"),
        ("pretrain[embedding=rpoe]", "; did you mean 'pretrain[embedding=rope]'?"),
        ("bbbbb", "--only: unknown stage or key 'bbbbb' (allowed: pretrain, passkey)"),
        ("", "--only: unknown stage or key ''"),
        ("aaaaaa",
         "--only: 'aaaaaa' means 2 stages: pretrain[embedding=rope] (aaaaaa11),"
         " pretrain[embedding=nope] (aaaaaa22), needs one label or key"),
    ],
)  # fmt: skip
def test_a_name_that_means_no_stage_or_several_keys(name: str, message: str) -> None:
    with pytest.raises(SweepError) as caught:
        find_stages(STAGES, ["passkey", name, "x1"], ("--only",))
    assert len(caught.value.problems) == 2
    assert message in str(caught.value)


def test_a_stage_that_several_sweeps_name_is_found_by_each_name() -> None:
    other = Named(ROPE.key, "base", "base[embedding=rope]")
    for name in ("base", "pretrain[embedding=rope]", "aaaaaa11"):
        assert find_stages([*STAGES, other], [name]) == [ROPE]


def test_a_stage_without_a_name_is_found_by_its_key_alone() -> None:
    nameless = Named("dddddd44" + "0" * 24, "", "")
    assert find_stage([*STAGES, nameless], "dddddd44") == nameless
    with pytest.raises(SweepError, match=r"unknown stage or key '' \(allowed: pretrain, passkey\)"):
        find_stage([*STAGES, nameless], "")


def test_one_stage() -> None:
    assert find_stage(STAGES, "passkey") == PASSKEY
    with pytest.raises(SweepError, match=r"'pretrain' means 2 stages: .*, needs one label or key"):
        find_stage(STAGES, "pretrain", ("STAGE",))


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


def sections(planned: Plan, *names: str) -> set[str]:
    return {stage.section for stage in stages_to_redo([planned], names)}


def test_everything_that_depends_on_it_is_re_run_parents_first(planned: Plan) -> None:
    assert sections(planned, "pretrain") == {
        "pretrain", "extend", "finetune", "perplexity", "passkey"
    }  # fmt: skip
    assert sections(planned, "perplexity") == {"perplexity"}
    order = [stage.key for stage in stages_to_redo([planned], ["pretrain"])]
    for stage in planned.sweep.stages:
        if stage.key in order:
            before = [order.index(key) for key in stage.parents.values() if key in order]
            assert all(index < order.index(stage.key) for index in before)


def test_stale_stages_are_those_of_the_plan(planned: Plan) -> None:
    [one, _] = [stage for stage in planned.sweep.stages if stage.section == "perplexity"]
    planned = dataclasses.replace(planned, changes={one.key: ("alibi.py",)})
    assert stages_to_redo([planned]) == []
    assert stages_to_redo([planned], stale=True) == [one]


def write(path: Path) -> None:
    (path / "model").write_text("weights")


def finished(path: Path) -> StageFolder:
    folder = StageFolder(path / "pretrain" / "key")
    with folder.begin("first", {}) as attempt:
        attempt.writer.log(1, {"loss": 2.0})
        attempt.writer.save_checkpoint(1, write)
        attempt.finish({"loss": 2.0})
    return folder


def test_what_was_there_is_set_aside_whole(tmp_path: Path) -> None:
    folder = finished(tmp_path)
    rows = folder.rows()
    aside = folder.set_aside("second")
    assert aside is not None
    assert folder.state().status is Status.NOT_STARTED
    assert folder.state().checkpoint is None
    assert (folder.rows(), folder.result()) == ([], None)
    kept = {str(path.relative_to(aside)) for path in aside.rglob("*") if path.is_file()}
    assert kept == {
        "DONE",
        "result.json",
        "checkpoint/0001-000000001/manifest.json",
        "checkpoint/0001-000000001/model",
        "metrics/0001-000000000.jsonl",
    }
    assert folder.set_aside("third") is None

    with folder.begin("third", {}) as attempt:
        assert attempt.writer.resumed_from is None
        attempt.writer.log(1, {"loss": 3.0})
        attempt.finish({"loss": 3.0})
    assert [row.values for row in folder.rows()] == [{"loss": 3.0}] != [r.values for r in rows]
    assert folder.result() == {"loss": 3.0}


def test_a_stage_that_somebody_works_on_is_left_alone(tmp_path: Path) -> None:
    folder = StageFolder(tmp_path / "pretrain" / "key")
    with folder.begin("first", {}) as attempt:
        attempt.writer.save_checkpoint(1, write)
        with pytest.raises(LeaseHeldError):
            folder.set_aside("second")
        attempt.finish({})
    assert folder.is_done()


@pytest.mark.parametrize("moved", ["checkpoint", "checkpoint metrics"])
def test_a_process_that_dies_while_it_moves_output_leaves_no_finished_stage(
    tmp_path: Path, moved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    folder = finished(tmp_path)
    real, names = os.rename, moved.split()

    def rename(source: Path, target: Path) -> None:
        if Path(source).name not in names:
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr("fope_lab.store.folder.os.rename", rename)
    with pytest.raises(KeyboardInterrupt):
        folder.set_aside("second")
    monkeypatch.undo()
    assert not folder.is_done()
    with folder.begin("third", {}, supersede=2) as attempt:
        assert attempt.writer.resumed_from is None
        attempt.finish({})
    assert folder.rows() == []
